// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What all caches have in common. Not for users; it may change in any release.
#pragma once

#include <pinfold/detail/engine.hpp>

#include <memory>
#include <utility>
#include <vector>

namespace pinfold::detail {

/// A back end and the engine that drives it. Every member may be called on any thread at any time, except that the
/// destructor and a move must not run at the same time as another member. An object that was moved from answers
/// `closed`, finds nothing, and can be assigned to.
template <class Backend>
class front {
 public:
  front(front&& other) noexcept
      : backend_(std::move(other.backend_)),
        engine_(std::move(other.engine_)),
        hits_(std::exchange(other.hits_, &hits_of(nullptr))) {}
  front& operator=(front&& other) noexcept {
    engine_ = std::move(other.engine_);  // first: the old engine still needs the old back end
    hits_ = std::exchange(other.hits_, &hits_of(nullptr));
    backend_ = std::move(other.backend_);
    return *this;
  }
  /// Closes everything once. Waits for leases up to `drain_timeout`; those still out then read as `closed` and their
  /// release does nothing (R42). Another thread that is inside the driver by then keeps the back end until it returns.
  ~front() = default;

  /// Closes everything that nobody holds, retries closes that failed before, and waits for those that other threads are
  /// at. Returns the first that fails again; `timed_out` when another thread's close takes longer than `wait_timeout`.
  result<void> flush() noexcept { return detail::flush(engine_.get()); }

  /// As `flush`, but refuses with `in_use_conflict`, and closes nothing, while any lease is out. For checkpoints.
  result<void> quiesce() noexcept { return detail::quiesce(engine_.get()); }

  /// Does the closes that are due: stale entries without a lease, and deferred ones. Returns the first that fails.
  result<void> progress() noexcept { return detail::progress(engine_.get()); }

  /// The counters. Never waits for anyone.
  [[nodiscard]] pinfold::statistics statistics() const noexcept { return detail::read_statistics(engine_.get()); }

  /// Every entry, for people. Allocates.
  [[nodiscard]] std::vector<entry_info> dump() const { return detail::dump(engine_.get()); }

  /// The back end inside. What may be called on it while the cache runs is for the back end to say. Throws
  /// `std::logic_error` when the cache was moved from.
  [[nodiscard]] Backend& backend() {
    if (backend_ == nullptr) throw_moved_from();
    return *backend_;
  }

 protected:
  /// `table_for(Backend&)` gives the driver table.
  template <class TableFor>
  front(Backend backend, cache_options options, TableFor&& table_for)
      : backend_(std::make_shared<Backend>(std::move(backend))),
        engine_(make_engine(table_for(*backend_), std::move(options), backend_)),
        hits_(&hits_of(engine_.get())) {}

  /// Null when the cache was moved from.
  [[nodiscard]] engine* inside() const noexcept { return engine_.get(); }
  [[nodiscard]] const hit_view& hits() const noexcept { return *hits_; }

 private:
  std::shared_ptr<Backend> backend_;  // the engine shares it while another thread is in the driver
  engine_handle engine_;
  const hit_view* hits_;
};

}  // namespace pinfold::detail
