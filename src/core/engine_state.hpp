// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The state that every part of an engine uses: the shards, the budget, the driver, the monitors.
#pragma once

#include "core/cache_monitors.hpp"
#include "core/cache_number.hpp"
#include "core/change_signal.hpp"
#include "core/deadlines.hpp"
#include "core/driver_calls.hpp"
#include "core/lookup_result.hpp"
#include "core/reporter.hpp"
#include "core/shard.hpp"
#include "invalidation/event_log.hpp"
#include "invalidation/registered_filter.hpp"

#include <pinfold/detail/engine.hpp>
#include <pinfold/detail/hit.hpp>
#include <pinfold/options.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace pinfold::detail {

inline constexpr error cache_ended{errc::closed, native_kind::none, 0, "the cache is shutting down"};

using core::shard;
using index::entry;
using index::pins_of;

/// The lowest part of an engine. Each part is a class that derives from the one below it
/// (docs/understand/architecture.md, *The parts of an engine*): it calls the parts below, and owns the state that only
/// it and the parts above need. Functions that require a shard's mutex and are marked "unlocks" may release it while
/// the driver or the sink works. Nothing read before such a call is known to hold after it. All others require that the
/// thread holds no shard's mutex. Thread-safe.
class engine_state {
 public:
  engine_state(const engine_state&) = delete;
  engine_state& operator=(const engine_state&) = delete;

  [[nodiscard]] const cache_options& options() const noexcept { return options_; }
  [[nodiscard]] const char* driver_name() const noexcept { return driver_.name(); }
  [[nodiscard]] bool keeps() const noexcept { return monitors_.keeps(); }
  /// Returns whether this is the process that made the engine. A forked child must not touch the engine.
  [[nodiscard]] bool here() const noexcept { return event_log_.process() == process_; }

  // Public, as each part inherits it.
  engine_state(engine& self, const driver& table, cache_options options, core::cache_monitors::selected monitors,
               std::shared_ptr<void> backend);

 protected:
  using counter = core::counter;
  using deadlines = core::deadlines;
  using lookup_result = core::lookup_result;

  ~engine_state() = default;

  /// Returns whether requests hit only under the mutex.
  [[nodiscard]] bool hits_need_the_mutex() const noexcept {
    return hits_need_the_mutex_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool defers_closes() const noexcept { return options_.closes == close_policy::deferred; }
  /// Returns the number of leases, and for moments also of threads that wait for an opener. Reads all entries and
  /// ledgers.
  [[nodiscard]] std::uint64_t leases_out() const noexcept;
  [[nodiscard]] static std::uint64_t leases_out(const shard& in) noexcept;
  // Taken in the order of the shards.
  void lock_all() const noexcept;
  void unlock_all() const noexcept;
  /// Returns the leases and the opens that are under way, at one moment.
  [[nodiscard]] std::uint64_t in_use() const noexcept;
  [[nodiscard]] std::size_t closes_in_flight() const noexcept;

  // The fields that a hit reads, on cache lines that are hardly ever written.
  alignas(64) hit_view view_;
  const core::cache_number number_;  // 0 when none was free: then every hit takes the mutex
  const cache_options options_;
  const invalidation::event_log& event_log_;
  const std::uint64_t process_;                     // a copy: the control block's is in the cache line of the mutex
  invalidation::registered_filter* const watched_;  // null for imported memory, which has tokens
  core::cache_monitors monitors_;
  core::shared_counters counters_;
  core::reporter reporter_;
  core::driver_calls driver_;
  std::atomic<bool> hits_need_the_mutex_{false};  // set for good when the kernel refuses the barrier

  core::budget budget_;
  core::shards shards_;
  core::change_signal changes_;

 private:
  [[nodiscard]] static std::size_t shards_for(const driver& table, const cache_options& options) noexcept;
  [[nodiscard]] std::unique_ptr<observation::cache_page> make_page(const driver& table) const;
};

}  // namespace pinfold::detail
