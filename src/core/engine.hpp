// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The engine behind every cache: decides which transitions of the `entry_table` to make and when, calls the driver,
/// the monitors and the sink, waits, and wakes the threads that wait. `docs/understand/protocol.md` is its
/// specification; docs/understand/architecture.md lists its parts.
#pragma once

#include "core/debug_listing.hpp"
#include "core/engine_requests.hpp"
#include "core/neighbours.hpp"
#include "core/rundown.hpp"
#include "os/probes.hpp"

#include <pinfold/detail/engine.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace pinfold::detail {

/// The engine of one cache, above its parts: closes all entries, shuts down, and outlives its cache as long as a lease
/// is out. Thread-safe.
class engine : public engine_requests {
 public:
  /// Makes an engine. Throws `std::bad_alloc`, or `std::system_error` when the reaper's thread cannot start. The engine
  /// keeps `backend` until no thread is in the driver any more.
  [[nodiscard]] static engine* make(const driver& table, cache_options options, core::cache_monitors::selected monitors,
                                    std::shared_ptr<void> backend);

  [[nodiscard]] std::string monitors() const;
  /// True if a plain miss has no cancellation point; `acquire` may then try `plain_miss` unguarded.
  [[nodiscard]] bool meets_no_cancellation_point() const noexcept {
    return meets_no_cancellation_point_ && os::probes_attached() == 0;
  }
  /// Moves a pin to the entry's own counter.
  static pin pin_again(pin held) noexcept;
  /// Does what is due after a release, or after a failed hit in the cache with the number `cache`.
  static result<void> finish_release(const record* unpinned, asked_by caller, std::uint32_t cache) noexcept;
  static constexpr std::uint32_t by_lease = UINT32_MAX;

  /// Closes the entries there that no lease holds, stale ones included. Returns whether it closed any.
  [[nodiscard]] bool close_idle(const range& where) noexcept;
  result<void> flush() noexcept;
  result<void> quiesce() noexcept;
  result<void> progress() noexcept;
  std::size_t evict(std::size_t most) noexcept;
  [[nodiscard]] result<bool> restore(const core::restored_now& one) noexcept;

  /// Reads the counters; without `complete`, all but the number of leases, which requires reading each entry.
  [[nodiscard]] statistics read_statistics(bool complete = true) const noexcept;
  [[nodiscard]] bool is_leased(peer_id peer, const range& where) const noexcept;
  [[nodiscard]] std::vector<entry_info> dump() const;

  /// Keeps the engine's memory until `stay_no_longer`. Requires a cache, or another stay.
  void stay() noexcept;
  static void stay_no_longer(engine* from) noexcept;
  /// Ends a call of a thread that keeps the engine's memory.
  void end_background_call() noexcept;
  /// The calls of threads that keep the engine's memory.
  [[nodiscard]] core::rundown& background() noexcept { return background_; }

  /// Ends the engine (R42) and frees it, now or with the last lease.
  static void shut_down(engine* ending) noexcept;
  /// Makes the engine drop the memory of each exporter that ends, if the importer detects the end. Throws
  /// `std::bad_alloc`.
  void watch_exporters();

 private:
  engine(const driver& table, cache_options options, core::cache_monitors::selected monitors,
         std::shared_ptr<void> backend);
  ~engine() = default;

  // engine_release.cpp
  [[nodiscard]] bool may_close(asked_by caller, std::uint32_t cache) const noexcept;

  // engine_life.cpp
  [[nodiscard]] engine* leave_if_last(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);
  void leave_shards() noexcept;
  [[nodiscard]] engine* leave() noexcept;
  static void destroy(engine* ended) noexcept;

  // engine_inspect.cpp
  void add_all(const shard& in, std::vector<entry_info>& to) const noexcept PINFOLD_REQUIRES(in.mutex);

  // engine_flush.cpp
  result<void> close_unpinned(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);                        // unlocks
  result<void> close_unheld(shard& in, const deadlines& until) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  result<void> close_all_unheld() noexcept;
  result<void> quiesce_without_hits() noexcept;
  result<void> close_all_and_remember() noexcept;
  result<void> wait_for_closes() noexcept;
  void stop_all_hits() noexcept;

  // engine_reaper.cpp, engine_shutdown.cpp
  void reap() noexcept;
  void wait_for_work() noexcept;
  [[nodiscard]] std::optional<std::chrono::milliseconds> time_to_next_look() const noexcept;
  [[nodiscard]] bool anything_to_watch() const noexcept;
  static void run_reaper(engine* home) noexcept;
  void end_requests() noexcept;
  void leave_to_leases(bool threads_ended) noexcept;
  void wait_for_others(core::deadline until) noexcept;
  void close_everything(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  void close_refused(core::deadline until) noexcept;
  void say_goodbye(std::uint64_t leases, std::size_t closes) noexcept;

  const bool meets_no_cancellation_point_;
  core::debug_listing listed_;
  core::neighbour neighbour_{*this};
  std::shared_ptr<background_use> exporters_;  ///< of the thread that reports their ends; null once the cache ends
  core::rundown background_;
  std::atomic<std::size_t> owing_;  // shards, the reaper, background uses, the cache: the last that leaves frees it
};

}  // namespace pinfold::detail
