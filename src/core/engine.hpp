// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The engine behind every cache: decides which transitions of the `entry_table` to make and when, calls the driver,
/// the monitors and the sink, waits, and wakes the threads that wait. `docs/protocol.md` is its specification; the
/// functions are spread over `engine_*.cpp`, one idea a file, in the order of docs/architecture.md.
#pragma once

#include "core/cache_number.hpp"
#include "core/deadlines.hpp"
#include "core/entry_table.hpp"
#include "core/idle_sweep.hpp"
#include "core/leased_notices.hpp"
#include "core/open_waiter.hpp"
#include "core/page_audit.hpp"
#include "core/release_watch.hpp"
#include "core/wait_table.hpp"
#include "core/watched_by.hpp"
#include "index/record_page.hpp"
#include "invalidation/event_log.hpp"
#include "os/barrier.hpp"
#include "os/mutex.hpp"

#include <pinfold/detail/engine.hpp>
#include <pinfold/detail/hit.hpp>

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace pinfold::detail {

using index::entry;
using index::pins_of;

/// How many of the due closes a miss does: so closes do not pile up where threads only acquire, and no miss pays for a
/// whole invalidation.
inline constexpr std::size_t closes_per_miss = 4;

/// The engine of one cache. Thread-safe. Functions that require the mutex and are marked "unlocks" may release it while
/// the driver or the sink works. Nothing read before such a call is known to hold after it.
class engine {
 public:
  using watched_by = core::watched_by;

  /// Makes an engine. Throws `std::bad_alloc`, or `std::system_error` when the reaper's thread cannot start. The engine
  /// keeps `backend` until no thread is in the driver any more.
  [[nodiscard]] static engine* make(const driver& table, cache_options options, watched_by monitors,
                                    std::shared_ptr<void> backend);
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;

  [[nodiscard]] grant look_up(std::uintptr_t begin, std::uintptr_t end, access_flags need) noexcept;
  [[nodiscard]] grant look_up(peer_id peer, range wanted, const void* token) noexcept;
  [[nodiscard]] grant look_up(const request& what) noexcept;
  [[nodiscard]] static const hit_view& no_hits() noexcept;
  /// Returns the view for the inline hits of caches: one that never hits when a monitor has to be asked first.
  [[nodiscard]] const hit_view& inline_view() const noexcept {
    return options_.strict && monitors_ != nullptr ? no_hits() : view_;
  }
  [[nodiscard]] bool keeps() const noexcept { return keeps_; }
  [[nodiscard]] std::string monitors() const;
  [[nodiscard]] result<grant> acquire(const request& what) noexcept PINFOLD_EXCLUDES(mutex_);
  void acquire_group(std::span<const request> what, std::span<result<grant>> granted) noexcept PINFOLD_EXCLUDES(mutex_);
  [[nodiscard]] grant find(const request& what) noexcept PINFOLD_EXCLUDES(mutex_);
  /// Moves a pin to the entry's own counter.
  static pin pin_again(pin held) noexcept;
  /// Does what is due after a release, or after a failed hit in the cache with the number `cache`.
  static result<void> finish_release(const record* unpinned, asked_by caller, std::uint32_t cache) noexcept;
  static constexpr std::uint32_t by_lease = UINT32_MAX;

  /// Whether this is the process that made the engine. A forked child must not touch the engine.
  [[nodiscard]] bool here() const noexcept { return event_log_.process() == process_; }

  void invalidate(peer_id peer, const range& gone) noexcept PINFOLD_EXCLUDES(mutex_);
  void unpersist(peer_id peer, const range& where) noexcept PINFOLD_EXCLUDES(mutex_);
  result<void> drop_peer(peer_id peer) noexcept PINFOLD_EXCLUDES(mutex_);
  result<void> flush() noexcept PINFOLD_EXCLUDES(mutex_);
  result<void> quiesce() noexcept PINFOLD_EXCLUDES(mutex_);
  result<void> progress() noexcept PINFOLD_EXCLUDES(mutex_);
  std::size_t evict(std::size_t most) noexcept PINFOLD_EXCLUDES(mutex_);

  [[nodiscard]] statistics read_statistics() const noexcept;
  [[nodiscard]] bool is_leased(peer_id peer, const range& where) const noexcept PINFOLD_EXCLUDES(mutex_);
  [[nodiscard]] std::vector<entry_info> dump() const PINFOLD_EXCLUDES(mutex_);

  /// Ends the engine (R42) and frees it, now or with the last lease.
  static void shut_down(engine* ending) noexcept;

 private:
  engine(index::control_block& own, const driver& table, cache_options options, watched_by monitors,
         std::shared_ptr<void> backend);
  ~engine();
  void mutex_is_held() const noexcept PINFOLD_SAYS_HELD(mutex_) {}  // where the analysis cannot know

  using release_watch = core::release_watch;
  using lookup_result = core::lookup_result;
  using miss_reason = core::miss_reason;
  using counter = core::counter;
  using deadlines = core::deadlines;
  using open_waiter = core::open_waiter;
  using extent_to_open = core::extent_to_open;
  using invalidated_entries = core::invalidated_entries;
  using happened = core::happened;

  // --- the sink (engine_tell.cpp)
  [[nodiscard]] event about(const entry& one, event_kind kind, severity level) const noexcept;
  void tell(event what) noexcept PINFOLD_EXCLUDES(mutex_);
  void tell(const core::leased_notices& notices) noexcept PINFOLD_EXCLUDES(mutex_);
  void tell_failed_close(event failed, const error& why) noexcept PINFOLD_EXCLUDES(mutex_);

  // --- barriers, waiting, waking (engine_wait.cpp)
  bool wait_for(const void* what, core::deadline until) noexcept PINFOLD_REQUIRES(mutex_);              // unlocks
  bool wait_for_release(release_watch& watch, core::deadline until) noexcept PINFOLD_REQUIRES(mutex_);  // unlocks
  [[nodiscard]] bool wait_for_transient(release_watch& watch, const deadlines& until) noexcept
      PINFOLD_REQUIRES(mutex_);  // unlocks
  [[nodiscard]] core::deadline end_of_transient(const deadlines& until) const noexcept PINFOLD_REQUIRES(mutex_);
  void order_hits() noexcept PINFOLD_REQUIRES(mutex_);
  void settle() noexcept PINFOLD_REQUIRES(mutex_);
  void closes_are_due() noexcept PINFOLD_REQUIRES(mutex_);
  void wake_reaper() noexcept;

  // --- closing (engine_close.cpp)
  [[nodiscard]] result<void> call_close(const registration& object) noexcept {
    const auto turn = driver_turn();
    return driver_.close(driver_.self, object);
  }
  result<void> close(entry& closable, std::optional<event_kind> why = {}) noexcept PINFOLD_REQUIRES(mutex_);  // unlocks
  [[nodiscard]] bool close_unpublished(entry& opening, const opened& made) noexcept
      PINFOLD_REQUIRES(mutex_);                                                      // unlocks
  result<void> close_queued(std::size_t at_most) noexcept PINFOLD_REQUIRES(mutex_);  // unlocks
  result<void> close_evicting() noexcept PINFOLD_REQUIRES(mutex_);                   // unlocks
  result<void> retry_quarantined() noexcept PINFOLD_REQUIRES(mutex_);                // unlocks

  // --- the engine's memory (engine_life.cpp)
  [[nodiscard]] std::uint64_t leases_out() const noexcept;
  /// Returns the leases and the opens that are under way.
  [[nodiscard]] std::uint64_t in_use() const noexcept PINFOLD_REQUIRES(mutex_) {
    return leases_out() + table_.openings();
  }
  [[nodiscard]] bool unused() const noexcept PINFOLD_REQUIRES(mutex_);
  [[nodiscard]] engine* leave_if_last() noexcept PINFOLD_REQUIRES(mutex_);
  void leave_control_block() noexcept PINFOLD_REQUIRES(mutex_);
  static void destroy(engine* ended) noexcept;

  // --- releases (engine_release.cpp)
  [[nodiscard]] bool may_close(asked_by caller, std::uint32_t cache) const noexcept;
  [[nodiscard]] bool defers_closes() const noexcept { return options_.closes == close_policy::deferred; }
  result<void> unpin(entry& held) noexcept PINFOLD_REQUIRES(mutex_);                  // unlocks
  result<void> unpinned(entry& freed, bool later) noexcept PINFOLD_REQUIRES(mutex_);  // unlocks

  // --- memory that is gone (engine_stale.cpp, engine_events.cpp)
  void replace(entry& stale) noexcept PINFOLD_REQUIRES(mutex_);  // unlocks
  /// Returns whether hits were impossible until now.
  bool catch_up(const request& what) noexcept PINFOLD_EXCLUDES(mutex_) {
    if (options_.strict && monitors_ != nullptr) monitors_->wait_for_events();
    if (view_.current()) [[likely]]
      return false;
    process_invalidations(what);
    return true;
  }
  void process_invalidations(const request& what) noexcept PINFOLD_EXCLUDES(mutex_);
  void catch_up_with_everything() noexcept PINFOLD_EXCLUDES(mutex_);
  [[nodiscard]] happened what_happened() const noexcept;
  [[nodiscard]] bool deal_with_some(const range& wanted, const happened& known) noexcept PINFOLD_EXCLUDES(mutex_);
  enum class reading : std::uint8_t { done, more, unfinished };
  [[nodiscard]] reading read_log(std::uint64_t target) noexcept PINFOLD_REQUIRES(mutex_);
  [[nodiscard]] bool skip_unpublished() noexcept PINFOLD_REQUIRES(mutex_);
  [[nodiscard]] bool invalidate_where(const range& wanted, invalidated_entries& into) noexcept PINFOLD_REQUIRES(mutex_);
  void invalidate_some(invalidated_entries& into) noexcept PINFOLD_REQUIRES(mutex_);
  void say_seen(const happened& known) noexcept PINFOLD_REQUIRES(mutex_);
  void doom_if_gone(entry& opening) noexcept PINFOLD_REQUIRES(mutex_) {
    if (!view_.current()) [[unlikely]]
      doom_if_pending(opening);
  }
  void doom_if_pending(entry& opening) noexcept PINFOLD_REQUIRES(mutex_);

  // --- monitors (engine_monitors.cpp)
  [[nodiscard]] bool monitors_watch(const range& extent) noexcept PINFOLD_EXCLUDES(mutex_) {
    return monitors_ == nullptr || is_watched(extent);
  }
  [[nodiscard]] bool is_watched(const range& extent) noexcept PINFOLD_EXCLUDES(mutex_);
  void tell_changes() noexcept PINFOLD_EXCLUDES(mutex_);
  [[nodiscard]] std::uint64_t monitor_failures() const noexcept;

  // --- room, conflicts (engine_room.cpp, engine_conflict.cpp)
  [[nodiscard]] result<void> reserve(entry& opening, std::size_t more_bytes, std::size_t more_count,
                                     const deadlines& until) noexcept PINFOLD_REQUIRES(mutex_);  // unlocks
  [[nodiscard]] static error larger_than_budget() noexcept;
  void mark_victims() noexcept PINFOLD_REQUIRES(mutex_);
  void queue_released() noexcept PINFOLD_REQUIRES(mutex_);
  void queue_idle() noexcept PINFOLD_REQUIRES(mutex_);
  [[nodiscard]] bool close_one_for_room() noexcept PINFOLD_REQUIRES(mutex_);  // unlocks
  [[nodiscard]] result<void> free_resources(const error& refused, std::uint64_t closes_before,
                                            const deadlines& until) noexcept PINFOLD_REQUIRES(mutex_);  // unlocks
  [[nodiscard]] result<void> clear_conflicts(entry& opening, const error& refused, const deadlines& until) noexcept
      PINFOLD_REQUIRES(mutex_);  // unlocks
  [[nodiscard]] bool evictable(entry& live) noexcept PINFOLD_REQUIRES(mutex_);
  [[nodiscard]] bool unpinned_for_good(const entry& one) const noexcept PINFOLD_REQUIRES(mutex_);
  [[nodiscard]] core::deadline end_of_conflict(const entry& pinned, const deadlines& until) const noexcept
      PINFOLD_REQUIRES(mutex_);

  // --- what a miss registers (engine_extent.cpp)
  [[nodiscard]] static extent_to_open plain_extent(const request& what, const range& extent,
                                                   const lookup_result& seen) noexcept;
  [[nodiscard]] bool merges(const request& what) const noexcept;
  [[nodiscard]] extent_to_open merged_extent(const request& what, const range& extent,
                                             const lookup_result& seen) const noexcept PINFOLD_REQUIRES(mutex_);
  [[nodiscard]] extent_to_open merged(const request& what, extent_to_open from) const noexcept PINFOLD_REQUIRES(mutex_);
  [[nodiscard]] bool may_register(const request& what, const extent_to_open& all) const noexcept
      PINFOLD_REQUIRES(mutex_);

  // --- opening (engine_open.cpp)
  [[nodiscard]] result<grant> open(const request& what, const extent_to_open& to, lookup_result& seen,
                                   const deadlines& until) noexcept PINFOLD_REQUIRES(mutex_);  // unlocks
  [[nodiscard]] entry& claim(const request& what, const extent_to_open& to, lookup_result& seen) noexcept
      PINFOLD_REQUIRES(mutex_);
  [[nodiscard]] result<grant> finish(entry& fresh, const request& what, result<opened>& made,
                                     std::uint64_t closes_before, const deadlines& until) noexcept
      PINFOLD_REQUIRES(mutex_);                                                                              // unlocks
  [[nodiscard]] bool opened_too_late(entry& opening, const opened& made) noexcept PINFOLD_REQUIRES(mutex_);  // unlocks
  [[nodiscard]] result<void> after_refusal(entry& opening, const error& refused, const request& what,
                                           std::uint64_t closes_before, const deadlines& until) noexcept
      PINFOLD_REQUIRES(mutex_);  // unlocks
  /// The calling thread's turn to call the driver, where one thread at a time may (R63). Taken without the mutex.
  [[nodiscard]] std::unique_lock<std::recursive_mutex> driver_turn() noexcept {
    return options_.serial ? std::unique_lock(driver_turn_) : std::unique_lock<std::recursive_mutex>();
  }
  [[nodiscard]] result<opened> call_open(entry& opening, void* argument) noexcept PINFOLD_REQUIRES(mutex_);  // unlocks
  [[nodiscard]] result<void> accept(entry& opening, const opened& made, const deadlines& until) noexcept
      PINFOLD_REQUIRES(mutex_);  // unlocks
  void publish(entry& opening, record& hot, const opened& made) noexcept PINFOLD_REQUIRES(mutex_);
  void shrink(entry& opening, std::size_t bytes) noexcept PINFOLD_REQUIRES(mutex_);
  [[nodiscard]] error abandon(entry& opening, const error& why, bool outdated = false) noexcept
      PINFOLD_REQUIRES(mutex_);
  [[nodiscard]] error take_back(entry& opening, const opened& made, const error& why) noexcept
      PINFOLD_REQUIRES(mutex_);  // unlocks

  // --- requests (engine_acquire.cpp)
  [[nodiscard]] result<grant> grant_for(const request& what) noexcept PINFOLD_EXCLUDES(mutex_);
  [[nodiscard]] grant find_any(const request& what) noexcept PINFOLD_EXCLUDES(mutex_);
  [[nodiscard]] std::size_t open_not_hittable() const noexcept PINFOLD_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
    return table_.open_not_hittable();
  }
  [[nodiscard]] grant hit_if_live(const request& what) noexcept PINFOLD_REQUIRES(mutex_);
  [[nodiscard]] grant hit(entry& found, const request& what) noexcept PINFOLD_REQUIRES(mutex_);
  /// Returns the grant of a pin on the record.
  [[nodiscard]] grant grant_on(pin held, const record& found, const request& what) const noexcept {
    const auto begin = what.wanted.begin;
    return {held, driver_.token_bytes > 0 ? local_address(found, begin) : reinterpret_cast<void*>(begin)};
  }
  /// Returns the grant of a pin that the entry counts.
  [[nodiscard]] grant grant_on(record& found, const request& what) const noexcept {
    return grant_on(reinterpret_cast<pin>(&found) | in_entry, found, what);
  }
  [[nodiscard]] result<range> checked(const request& what) const noexcept PINFOLD_EXCLUDES(mutex_);
  /// Prepares `registered_filter` to count `extent`. Returns false when there is no memory for that.
  [[nodiscard]] bool prepare_filter(const range& extent) noexcept {
    return watched_ == nullptr || watched_->prepare(extent);
  }
  [[nodiscard]] static error no_memory_for_page_counts() noexcept;
  /// Whether other processes could change a file under `extent` unseen: monitors of this process do not see that (R30).
  [[nodiscard]] bool others_could_take(const request& what, const range& extent) const noexcept {
    return monitors_ != nullptr && !what.unshared && !monitors_->sees_files() && is_of_a_file(what, extent);
  }
  [[nodiscard]] bool is_of_a_file(const request& what, const range& extent) const noexcept;
  [[nodiscard]] static request for_one_lease(request what) noexcept;
  [[nodiscard]] result<grant> acquire_slowly(const request& what, const range& extent) noexcept
      PINFOLD_REQUIRES(mutex_);                                           // unlocks
  [[nodiscard]] bool close_some_due() noexcept PINFOLD_REQUIRES(mutex_);  // unlocks
  [[nodiscard]] tl::unexpected<error> refused(const error& why) noexcept PINFOLD_REQUIRES(mutex_);
  [[nodiscard]] bool wait_for_overlapping_open(const request& what, const range& extent,
                                               const deadlines& until) noexcept PINFOLD_REQUIRES(mutex_);  // unlocks
  [[nodiscard]] result<grant> join(entry& opening, const request& what, const deadlines& until) noexcept
      PINFOLD_REQUIRES(mutex_);                                                                               // unlocks
  [[nodiscard]] result<void> wait_out(entry& one, const deadlines& until) noexcept PINFOLD_REQUIRES(mutex_);  // unlocks
  [[nodiscard]] miss_reason reason_of_miss(const request& what, const range& extent,
                                           const lookup_result& seen) const noexcept PINFOLD_REQUIRES(mutex_);
  void count_miss(miss_reason reason) noexcept;
  [[nodiscard]] bool spare_entry() noexcept PINFOLD_REQUIRES(mutex_);       // unlocks
  [[nodiscard]] bool make_spare_entry() noexcept PINFOLD_REQUIRES(mutex_);  // unlocks
  void grow_hit_table(unsigned step) noexcept PINFOLD_REQUIRES(mutex_);     // unlocks
  [[nodiscard]] bool grow_pool() noexcept PINFOLD_REQUIRES(mutex_);         // unlocks
  [[nodiscard]] bool grow_index() noexcept PINFOLD_REQUIRES(mutex_);        // unlocks

  // --- the audit, and tracing (engine_audit.cpp, engine_trace.cpp)
  [[nodiscard]] bool passes_audit(const grant& granted) noexcept PINFOLD_EXCLUDES(mutex_);
  void tell_failed_audit(const entry& found) noexcept PINFOLD_EXCLUDES(mutex_);
  [[nodiscard]] result<grant> acquire_audited(const request& what) noexcept PINFOLD_EXCLUDES(mutex_);
  [[nodiscard]] grant find_audited(const request& what) noexcept PINFOLD_EXCLUDES(mutex_);
  void tell_request(const request& what, const grant& granted, std::chrono::nanoseconds opened_for) noexcept
      PINFOLD_EXCLUDES(mutex_);

  // --- several at once (engine_group.cpp)
  struct group;
  [[nodiscard]] bool claim_if_simple(const request& what, const range& extent, std::size_t number,
                                     group& claimed) noexcept PINFOLD_REQUIRES(mutex_);
  void open_group(std::span<const request> what, group& claimed, std::span<result<grant>> granted) noexcept
      PINFOLD_REQUIRES(mutex_);  // unlocks
  void conclude(std::span<const request> what, const group& claimed, std::size_t i, result<opened>& made,
                std::uint64_t closes_before, const deadlines& until, std::span<result<grant>> granted) noexcept
      PINFOLD_REQUIRES(mutex_);  // unlocks

  // --- closing all that no lease holds (engine_flush.cpp)
  result<void> close_unpinned() noexcept PINFOLD_REQUIRES(mutex_);        // unlocks
  result<void> close_unheld() noexcept PINFOLD_REQUIRES(mutex_);          // unlocks
  result<void> quiesce_without_hits() noexcept PINFOLD_REQUIRES(mutex_);  // unlocks
  result<void> wait_for_closes() noexcept PINFOLD_REQUIRES(mutex_);       // unlocks

  // --- the reaper, and the end (engine_reaper.cpp, engine_shutdown.cpp)
  void reap() noexcept PINFOLD_REQUIRES(mutex_);           // unlocks
  void wait_for_work() noexcept PINFOLD_REQUIRES(mutex_);  // unlocks
  static void run_reaper(engine* home) noexcept;
  [[nodiscard]] bool stop_reaper(core::deadline until) noexcept PINFOLD_EXCLUDES(mutex_);
  void wait_for_others(core::deadline until) noexcept PINFOLD_REQUIRES(mutex_);  // unlocks
  void close_everything() noexcept PINFOLD_REQUIRES(mutex_);                     // unlocks
  void say_goodbye(std::uint64_t leases, std::size_t closes) noexcept PINFOLD_EXCLUDES(mutex_);

  // --- hits without the mutex (engine_hit.cpp)
  [[nodiscard]] static pin pin_for_this_thread(record& one) noexcept;
  [[nodiscard]] grant hit_again(record* one, std::uintptr_t begin, std::uintptr_t end, access_flags need) noexcept;
  [[nodiscard]] grant hit_again(record* one, peer_id peer, range wanted, const void* token) noexcept;
  [[nodiscard]] grant look_up_any(std::uintptr_t begin, std::uintptr_t end, access_flags need, asked_by caller,
                                  pin failed) noexcept;
  [[nodiscard]] grant look_up_any(peer_id peer, range wanted, const void* token, asked_by caller, pin failed) noexcept;
  [[nodiscard]] bool serves(const record& one, peer_id peer, const range& wanted, const void* token) const noexcept;
  [[nodiscard]] grant finish_hit(ledger& mine, record* found, std::uintptr_t key, grant got) const noexcept;
  void count_hit(ledger* mine, record* found, std::uintptr_t key, asked_by caller) noexcept;
  /// Whether hits are found only under the mutex.
  [[nodiscard]] bool hits_need_the_mutex() const noexcept {
    return hits_need_the_mutex_.load(std::memory_order_relaxed);
  }

  // The fields that a hit reads, on cache lines that no hit writes.
  alignas(64) index::hit_table hits_;  // written under the mutex, read without it
  hit_view view_;
  const core::cache_number number_;  // 0 when none was free: then every hit takes the mutex
  const std::uint64_t hits_before_;  // counted under this number before this cache was made
  const std::uint64_t finds_before_;
  const std::size_t token_offset_;
  const driver driver_;
  std::shared_ptr<void> backend_ PINFOLD_GUARDED_BY(mutex_);
  const cache_options options_;
  const invalidation::event_log& event_log_;
  const std::uint64_t process_;                     // a copy: the control block's is in the cache line of the mutex
  invalidation::registered_filter* const watched_;  // null for imported memory, which has tokens
  const std::shared_ptr<const invalidation::monitor_set> monitors_;
  const std::uint64_t failures_before_;  // of its monitors, before this cache was made
  std::atomic<std::uint64_t> changes_told_;
  const std::shared_ptr<void> tuning_;
  const bool keeps_;
  const std::string monitors_text_;
  std::optional<core::page_audit> audit_;
  std::atomic<bool> hits_need_the_mutex_{false};  // set for good when the kernel refuses the barrier
  std::atomic<bool> silent_{false};               // the cache has ended: the sink is not called any more
  core::counters counters_;

  std::recursive_mutex driver_turn_;  // with `serial`: a callback of the driver may release a lease, which may close

  index::control_block& control_;
  os::mutex& mutex_;
  core::budget budget_;     // written under the mutex, read without it
  index::entry_pool pool_;  // written under the mutex, walked without it
  core::entry_table table_ PINFOLD_GUARDED_BY(mutex_);
  std::uint64_t cursor_ PINFOLD_GUARDED_BY(mutex_);  // the next number to read from the event log
  core::pending_invalidations pending_ PINFOLD_GUARDED_BY(mutex_);
  core::deadline unfinished_since_ PINFOLD_GUARDED_BY(mutex_){};  // when a place on the event log was first found empty
  core::wait_table waiting_ PINFOLD_GUARDED_BY(mutex_);
  core::idle_sweep sweep_ PINFOLD_GUARDED_BY(mutex_);
  core::open_waiter* open_waiters_ PINFOLD_GUARDED_BY(mutex_) = nullptr;
  core::deadline last_vain_wait_ PINFOLD_GUARDED_BY(mutex_){};  // for transient pins
  bool orphaned_ PINFOLD_GUARDED_BY(mutex_) = false;            // the last thread that needs the engine frees it
  mutable std::atomic<std::uint64_t> peak_leases_{0};

  std::condition_variable_any reaper_wake_;
  bool reaper_runs_ PINFOLD_GUARDED_BY(mutex_) = false;
  bool reaper_stop_ PINFOLD_GUARDED_BY(mutex_) = false;
  std::thread reaper_;
};

}  // namespace pinfold::detail
