// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The members that all caches have: flush, progress, statistics.
#pragma once

#include <pinfold/detail/engine.hpp>
#include <pinfold/export.hpp>
#include <pinfold/range.hpp>
#include <pinfold/restoration.hpp>

#include <memory>
#include <utility>
#include <vector>

namespace pinfold {

/// The common part of `cache` and `import_cache`: a back end (registrar or importer), and the engine that calls it. Not
/// for use alone. Every member may be called on any thread at any time, except that the destructor and a move must not
/// run at the same time as another member. A moved-from object returns `closed`, finds nothing, and can be assigned to.
template <class Backend>
class cache_base {
 public:
  cache_base(cache_base&& other) noexcept
      : backend_(std::move(other.backend_)),
        engine_(std::move(other.engine_)),
        hits_(std::exchange(other.hits_, &detail::hits_of(nullptr))) {}
  cache_base& operator=(cache_base&& other) noexcept {
    engine_ = std::move(other.engine_);  // first, because the old engine still needs the old back end
    hits_ = std::exchange(other.hits_, &detail::hits_of(nullptr));
    backend_ = std::move(other.backend_);
    return *this;
  }
  /// Closes every registration once. Waits for leases up to `drain_timeout`; leases that are still out then read as
  /// `closed`, and their release does nothing (R42). If another thread is still in the driver, the back end lives until
  /// that thread returns.
  ~cache_base() = default;

  /// Closes every registration that has no lease and is not persistent, retries closes that failed before, and waits
  /// for the closes of other threads. Returns the error of the first close that fails; `timed_out` if another thread's
  /// close takes longer than `wait_timeout`.
  result<void> flush() noexcept { return detail::flush(engine_.get()); }

  /// Closes every registration, persistent ones included, and remembers them for `restore`: for a checkpoint, a sleep
  /// or a change of the memory. Ends a restoration in progress; what that has not registered yet stays remembered.
  /// Errors that close nothing: `in_use_conflict` (a lease is out), `timed_out` (another `quiesce`, or an open by a
  /// restoration, does not end within `wait_timeout`), `out_of_resources`. Other errors are those of `flush`; what was
  /// closed is then remembered.
  result<void> quiesce() noexcept { return detail::quiesce(engine_.get()); }

  /// Starts to register again, in the background, what `quiesce` closed and no request has registered since, the most
  /// used first, and only into free room of the budget. Memory that was invalidated meanwhile is left out. Monitors
  /// ignore unregistered memory, so call `restore` only if the memory is still mapped as before; otherwise the cache
  /// keeps stale ranges registered that no request uses. Requests may go on meanwhile. Errors: `closed`,
  /// `out_of_resources`.
  [[nodiscard]] result<restoration> restore(restore_options how = {}) noexcept {
    return restoration::begin(engine_.get(), std::move(how));
  }

  /// Does the closes that are due: stale entries without a lease, and deferred closes. Returns the error of the first
  /// that fails.
  result<void> progress() noexcept { return detail::progress(engine_.get()); }

  /// Closes up to `most` registrations that have no lease and are not persistent, in the order of eviction. Returns how
  /// many. A close that fails counts too; the cache retries it, and tells the sink.
  std::size_t evict(std::size_t most) noexcept { return detail::evict(engine_.get(), most); }

  /// Returns the counters. Never waits for another thread.
  [[nodiscard]] pinfold::statistics statistics() const noexcept { return detail::read_statistics(engine_.get()); }

  /// Returns every entry, for people to read. Allocates.
  [[nodiscard]] std::vector<entry_info> dump() const { return detail::dump(engine_.get()); }

  /// Returns the back end. Its documentation lists the members that may be called while the cache runs. Throws
  /// `std::logic_error` if the cache was moved from.
  [[nodiscard]] Backend& backend() {
    if (backend_ == nullptr) detail::throw_moved_from();
    return *backend_;
  }

  /// Returns the back end; null if the cache was moved from.
  [[nodiscard]] const Backend* backend_or_null() const noexcept { return backend_.get(); }

 protected:
  /// Makes the engine; `table_for(Backend&)` returns the driver table.
  template <class TableFor>
  cache_base(Backend backend, cache_options options, TableFor&& table_for)
      : backend_(std::make_shared<Backend>(std::move(backend))),
        engine_(detail::make_engine(table_for(*backend_), std::move(options), backend_)),
        hits_(&detail::hits_of(engine_.get())) {}

  /// Returns the engine; null if the cache was moved from.
  [[nodiscard]] detail::engine* inside() const noexcept { return engine_.get(); }
  /// Returns what the inline hit reads.
  [[nodiscard]] const detail::hit_view& hits() const noexcept { return *hits_; }

 private:
  std::shared_ptr<Backend> backend_;  // the engine shares it while another thread is in the driver
  detail::engine_handle engine_;
  const detail::hit_view* hits_;
};

/// Closes the registrations without a lease that touch the memory, in all caches of this process whose registrar is
/// `exclusive_in_process` and has that name. These caches do so for each other; this is for code that calls the same
/// driver itself and was refused (cuMemHostRegister returned ALREADY_REGISTERED). Returns whether anything was closed.
/// May wait for the driver.
PINFOLD_EXPORT bool close_idle_in_process(const char* registrar, const range& memory) noexcept;

}  // namespace pinfold
