// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The engine behind every cache: decides which transitions of the `entry_table` to make and when, calls the driver,
/// the monitors and the sink, waits, and wakes the threads that wait. `docs/understand/protocol.md` is its
/// specification; the functions are spread over `engine_*.cpp`, one idea a file, in the order of
/// docs/understand/architecture.md.
#pragma once

#include "core/cache_number.hpp"
#include "core/deadlines.hpp"
#include "core/debug_listing.hpp"
#include "core/leased_notices.hpp"
#include "core/neighbours.hpp"
#include "core/open_watch.hpp"
#include "core/page_audit.hpp"
#include "core/release_watch.hpp"
#include "core/remembered.hpp"
#include "core/rundown.hpp"
#include "core/shard.hpp"
#include "core/watched_by.hpp"
#include "invalidation/event_log.hpp"
#include "observation/cache_page.hpp"
#include "os/barrier.hpp"
#include "os/mutex.hpp"
#include "os/probes.hpp"

#include <pinfold/detail/engine.hpp>
#include <pinfold/detail/hit.hpp>

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace pinfold::core {
class node_request;
}

namespace pinfold::detail {

using core::shard;
using index::entry;
using index::pins_of;

/// How many of the due closes a miss does: so closes do not pile up where threads only acquire, and no miss pays for a
/// whole invalidation.
inline constexpr std::size_t closes_per_miss = 4;

/// The engine of one cache. Thread-safe. Functions that require a shard's mutex and are marked "unlocks" may release it
/// while the driver or the sink works. Nothing read before such a call is known to hold after it. All others require
/// that the thread holds no shard's mutex.
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
  [[nodiscard]] const char* name() const noexcept { return options_.name.c_str(); }
  [[nodiscard]] bool keeps() const noexcept { return keeps_; }
  [[nodiscard]] std::string monitors() const;
  [[nodiscard]] result<grant> acquire(const request& what) noexcept {
    return times_opens() || audit_ ? acquire_observed(what) : grant_for(what);
  }
  /// True if a plain miss has no cancellation point; `acquire` may then try `plain_miss` unguarded.
  [[nodiscard]] bool meets_no_cancellation_point() const noexcept {
    return meets_no_cancellation_point_ && os::probes_attached() == 0;
  }
  /// Serves a plain miss. Returns false, with no entry claimed, if the request is not plain: `acquire_generally` has to
  /// serve it.
  [[nodiscard]] bool plain_miss(const request& what, result<grant>& granted) noexcept;
  [[nodiscard]] result<grant> acquire_generally(const request& what) noexcept;
  void acquire_group(std::span<const request> what, std::span<result<grant>> granted) noexcept;
  [[nodiscard]] grant find(const request& what) noexcept;
  /// Moves a pin to the entry's own counter.
  static pin pin_again(pin held) noexcept;
  /// Does what is due after a release, or after a failed hit in the cache with the number `cache`.
  static result<void> finish_release(const record* unpinned, asked_by caller, std::uint32_t cache) noexcept;
  static constexpr std::uint32_t by_lease = UINT32_MAX;

  /// Whether this is the process that made the engine. A forked child must not touch the engine.
  [[nodiscard]] bool here() const noexcept { return event_log_.process() == process_; }

  void invalidate(peer_id peer, const range& gone, const void* token = nullptr) noexcept;
  /// Marks the registrations there that earlier events have made stale.
  void mark_stale(const range& where) noexcept {
    request what;
    what.wanted = where;
    catch_up(what);
  }
  [[nodiscard]] const cache_options& options() const noexcept { return options_; }
  [[nodiscard]] const char* driver_name() const noexcept { return driver_.name; }
  /// Closes what no lease holds there, and what is stale. Returns whether it closed anything.
  [[nodiscard]] bool close_idle(const range& where) noexcept;
  /// Ends the persistence of what is open there, and of what `quiesce` closed.
  void unpersist(peer_id peer, const range& where) noexcept;
  /// Invalidates what the peer has there, with that token if it is not null, and closes what is idle.
  result<void> drop(peer_id peer, const range& where, const void* token = nullptr) noexcept;
  result<void> flush() noexcept;
  result<void> quiesce() noexcept;
  result<void> progress() noexcept;
  std::size_t evict(std::size_t most) noexcept;

  // For threads that register again what `quiesce` closed: each begins with one, restores it, and ends.
  struct restorable {
    std::size_t count = 0;
    std::uint64_t quiesces = 0;  ///< how often `quiesce` has begun
  };
  [[nodiscard]] restorable remembers() noexcept;
  /// Returns false when there is nothing left, and when `quiesce` has begun again `since`.
  [[nodiscard]] bool begin_restoring(core::restored_now& one, std::uint64_t since) noexcept;
  [[nodiscard]] result<bool> restore(const core::restored_now& one) noexcept;
  void end_restoring(const core::restored_now& one) noexcept;

  /// Reads the counters; without `complete`, all but the leases, whose number takes a look at each registration.
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
  /// From now on, what exporters have when they end is dropped, where the importer learns of it. Throws
  /// `std::bad_alloc`.
  void watch_exporters();

 private:
  engine(const driver& table, cache_options options, watched_by monitors, std::shared_ptr<void> backend);
  ~engine();

  using change_waiter = core::change_signal::waiter;
  using release_watch = core::release_watch;
  using lookup_result = core::lookup_result;
  using miss_reason = core::miss_reason;
  using counter = core::counter;
  using deadlines = core::deadlines;
  using open_waiter = core::open_waiter;
  using extent_to_open = core::extent_to_open;
  using new_entry = core::entry_table::new_entry;
  using invalidated_entries = core::invalidated_entries;
  using happened = core::happened;

  // --- the sink (engine_tell.cpp)
  [[nodiscard]] event about(const entry& one, event_kind kind, severity level) const noexcept;
  void tell(event what) noexcept;
  void tell(const core::leased_notices& notices) noexcept;
  void tell_failed_close(event failed, const error& why) noexcept;

  // --- barriers, waiting, waking (engine_wait.cpp)
  bool wait_for(shard& in, const void* what, core::deadline until) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] bool wait_for_change(shard& in, change_waiter& self, core::deadline until) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] bool wait_for_change(change_waiter& self, core::deadline until) noexcept;
  [[nodiscard]] bool wait_for_release(shard& in, release_watch& watch, core::deadline until) noexcept
      PINFOLD_REQUIRES(in.mutex);                                                   // unlocks
  [[nodiscard]] bool any_transient(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] bool wait_for_transient(shard& in, release_watch& watch, const deadlines& until) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] core::deadline end_of_transient(const deadlines& until) const noexcept;
  bool order_hits(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);
  void settle(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);
  void closes_are_due() noexcept;
  void wake_reaper() noexcept;

  // --- closing (engine_close.cpp)
  [[nodiscard]] result<void> call_close(const registration& object, const range& where) noexcept {
    const auto start = core::open_watch::now(is_observed());
    auto closed = [&] {
      const auto turn = driver_turn();
      return driver_.close(driver_.self, object);
    }();
    if (start != core::open_watch::time_point{}) [[unlikely]]
      note_close(start, where, closed);
    return closed;
  }
  result<void> close(shard& in, entry& closable, std::optional<event_kind> why = {}) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] bool close_unpublished(shard& in, entry& opening, const opened& made) noexcept
      PINFOLD_REQUIRES(in.mutex);                                                                 // unlocks
  result<void> close_queued(shard& in, std::size_t at_most) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  result<void> close_evicting(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);                     // unlocks
  result<void> retry_quarantined(shard& in, core::deadline until = core::deadline::max()) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks

  // --- the engine's memory (engine_life.cpp)
  [[nodiscard]] static std::size_t shards_for(const driver& table, const cache_options& options) noexcept;
  [[nodiscard]] std::uint64_t leases_out() const noexcept;
  [[nodiscard]] static std::uint64_t leases_out(const shard& in) noexcept;
  // Taken in the order of the shards.
  void lock_all() const noexcept;
  void unlock_all() const noexcept;
  /// Returns the leases and the opens that are under way, at one moment.
  [[nodiscard]] std::uint64_t in_use() const noexcept;
  [[nodiscard]] std::size_t closes_in_flight() const noexcept;
  [[nodiscard]] engine* leave_if_last(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);
  void leave_shards() noexcept;
  [[nodiscard]] engine* leave() noexcept;
  static void destroy(engine* ended) noexcept;

  // --- the statistics page (engine_life.cpp, engine_observe.cpp)
  [[nodiscard]] std::unique_ptr<observation::cache_page> make_page() const;
  void start_page() noexcept;
  /// Whether there is a page, or a probe is attached.
  [[nodiscard]] bool is_observed() const noexcept { return page_ != nullptr || os::probes_attached() > 0; }
  [[nodiscard]] bool times_opens() const noexcept { return options_.trace_requests || is_observed(); }
  void note_request(core::open_watch::time_point start, std::chrono::nanoseconds opened_for, const range& wanted,
                    const result<grant>& granted) noexcept;
  void note_open(core::open_watch::time_point start, const range& where, const result<opened>& made) noexcept;
  void note_close(core::open_watch::time_point start, const range& where, const result<void>& closed) noexcept;
  void note_group(std::span<const open_request> asked, std::span<const result<opened>> made,
                  core::open_watch::time_point start) noexcept;
  void note_eviction(const entry& victim) noexcept;
  void note_wait(shard& in, std::chrono::nanoseconds spent) noexcept PINFOLD_REQUIRES(in.mutex);
  void note_invalidated(const invalidated_entries& marked) noexcept;
  void note(const event& what) noexcept;

  // --- statistics (engine_inspect.cpp)
  void add_all(const shard& in, std::vector<entry_info>& to) const noexcept PINFOLD_REQUIRES(in.mutex);

  // --- releases (engine_release.cpp)
  [[nodiscard]] bool may_close(asked_by caller, std::uint32_t cache) const noexcept;
  [[nodiscard]] bool defers_closes() const noexcept { return options_.closes == close_policy::deferred; }
  result<void> unpin(shard& in, entry& held) noexcept PINFOLD_REQUIRES(in.mutex);                  // unlocks
  result<void> unpinned(shard& in, entry& freed, bool later) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks

  // --- memory that is gone (engine_stale.cpp, engine_events.cpp)
  void replace(shard& in, entry& stale) noexcept PINFOLD_REQUIRES(in.mutex);            // unlocks
  void replace_and_close(shard& in, entry& stale) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  /// Returns whether hits were impossible until now.
  bool catch_up(const request& what) noexcept {
    if (waits_for_events()) monitors_->wait_for_events();
    if (view_.current()) [[likely]]
      return false;
    process_invalidations(what);
    return true;
  }
  [[nodiscard]] bool waits_for_events() const noexcept { return options_.strict && monitors_ != nullptr; }
  void process_invalidations(const request& what) noexcept;
  void catch_up_with_everything() noexcept;
  [[nodiscard]] happened what_happened() const noexcept;
  [[nodiscard]] bool deal_with_some(const range& wanted, const happened& known) noexcept;
  enum class reading : std::uint8_t { done, more, unfinished };
  [[nodiscard]] reading read_log(std::uint64_t target) noexcept PINFOLD_EXCLUDES(events_mutex_);
  [[nodiscard]] bool skip_unpublished() noexcept PINFOLD_REQUIRES(events_mutex_);
  [[nodiscard]] bool waits_for_log() noexcept PINFOLD_EXCLUDES(events_mutex_);
  void deliver(const range& gone) noexcept PINFOLD_REQUIRES(events_mutex_);
  [[nodiscard]] bool process_pending(const range& wanted, core::leased_notices& still_held) noexcept;
  [[nodiscard]] bool invalidate_where(shard& in, const range& wanted, invalidated_entries& into) noexcept
      PINFOLD_REQUIRES(in.mutex);
  void invalidate_some(shard& in, invalidated_entries& into) noexcept PINFOLD_REQUIRES(in.mutex);
  void say_seen(const happened& known) noexcept PINFOLD_EXCLUDES(events_mutex_);
  void read_up_to_now() noexcept {
    if (!view_.current()) [[unlikely]]
      read_all_events();
  }
  void read_all_events() noexcept;
  static void doom_if_gone(shard& in, entry& opening) noexcept PINFOLD_REQUIRES(in.mutex);
  void tell_driver(const shard& in, const invalidated_entries& gone) const noexcept PINFOLD_REQUIRES(in.mutex);

  // --- monitors (engine_monitors.cpp)
  [[nodiscard]] bool monitors_watch(const range& extent) noexcept { return monitors_ == nullptr || is_watched(extent); }
  [[nodiscard]] bool is_watched(const range& extent) noexcept;
  void tell_changes() noexcept;
  [[nodiscard]] std::uint64_t monitor_failures() const noexcept;

  // --- taking room (engine_reserve.cpp)
  [[nodiscard]] result<void> reserve(shard& in, entry& opening, std::size_t more_bytes, std::size_t more_count,
                                     const deadlines& until) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] static error larger_than_budget() noexcept;
  [[nodiscard]] std::optional<result<void>> without_room(shard& in, entry& opening, std::size_t more_bytes,
                                                         release_watch& watch, core::node_request& node,
                                                         const deadlines& until) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] bool may_bypass(const entry& opening) const noexcept;
  [[nodiscard]] result<void> bypass(shard& in, entry& opening, std::size_t more_bytes,
                                    core::node_request& request) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] error no_room(shard& in, const entry& opening, core::node_request& request) noexcept
      PINFOLD_REQUIRES(in.mutex);                                   // unlocks
  void gather_room(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks

  // --- the node's budget (engine_node.cpp)
  void give_way(shard& in, std::size_t most) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  void give_way() noexcept;
  [[nodiscard]] bool other_processes_matter(shard& in, const core::node_request& request) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] static bool dead_gave_room(shard& in, const core::node_request& request) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] static bool dead_gave_room_at_last(shard& in, const core::node_request& request) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] bool wait_for_room(shard& in, const entry& opening, release_watch& watch, core::node_request& request,
                                   const deadlines& until) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  /// Whether requests wait in turn with those of other processes.
  [[nodiscard]] bool takes_turns() const noexcept {
    return budget_.node() != nullptr && options_.full == when_full::wait;
  }
  void wait_for_turn(shard& in, const entry& opening, release_watch& watch, core::node_request& request,
                     const deadlines& until) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  void tell_refusal(shard& in, const entry& opening, core::node_request& request) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  void tell_no_room(shard& in, const entry& opening, const core::node_request& request, event_kind kind) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks

  // --- room, conflicts (engine_room.cpp, engine_conflict.cpp)
  void mark_victims(shard& in, unsigned rounds) noexcept PINFOLD_REQUIRES(in.mutex);
  void mark_all_at_once(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);
  /// What a thread that needs room found.
  enum class looked : std::uint8_t {
    closed_one,
    closing,  ///< another thread closes an entry
    nothing,
  };
  [[nodiscard]] looked close_one_of_all_at_once() noexcept;
  void queue_released(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);
  void queue_idle(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);
  [[nodiscard]] bool close_marked(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] bool close_one_of(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  /// How a request learns that nothing can be closed.
  enum class proof : std::uint8_t {
    now,     ///< all was leased at a moment during the call: a request may be refused (R58)
    lately,  ///< or a short time ago: a request bypasses the budget, or entries are closed for other processes
  };
  [[nodiscard]] looked close_one_for_room(shard& in, proof wanted = proof::now) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] looked close_one_anywhere(proof wanted) noexcept;
  [[nodiscard]] bool all_leased_lately() const noexcept;
  void note_all_leased(core::deadline since) noexcept;
  [[nodiscard]] shard& next_for_eviction() noexcept;
  void retry_all_quarantined(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] bool any_quarantined() const noexcept;
  [[nodiscard]] bool retry_quarantined_once(shard& in, bool& retried) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  /// Whether room comes back without this shard's mutex.
  [[nodiscard]] bool others_give_back() const noexcept { return shards_.size() > 1 || budget_.node() != nullptr; }
  /// How many closes there were when the driver was asked.
  struct closes_known {
    std::uint64_t done;
    unsigned asked = 0;  ///< how often the driver was asked before
  };
  [[nodiscard]] bool closed_since(const closes_known& before) const noexcept {
    return closes_done_.load(std::memory_order_acquire) != before.done;
  }
  [[nodiscard]] result<void> free_resources(shard& in, const error& refused, const closes_known& before,
                                            const deadlines& until) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] result<void> clear_conflicts(shard& in, entry& opening, const error& refused,
                                             const closes_known& before, const deadlines& until) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] result<bool> clear_overlaps(shard& in, peer_id peer, const range& where, const entry* opening,
                                            const error& refused, const deadlines& until) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] result<bool> clear_overlaps_elsewhere(shard& in, entry& opening, const error& refused,
                                                      const deadlines& until) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] bool cleared_in_other_caches(shard& in, const entry& opening) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] bool evictable(shard& in, entry& live) noexcept PINFOLD_REQUIRES(in.mutex);
  [[nodiscard]] bool unpinned_for_good(shard& in, const entry& one) const noexcept PINFOLD_REQUIRES(in.mutex);
  [[nodiscard]] core::deadline end_of_conflict(const entry& pinned, const deadlines& until) const noexcept;

  // --- what a miss registers (engine_extent.cpp)
  [[nodiscard]] static extent_to_open plain_extent(const request& what, const range& extent,
                                                   const lookup_result& seen) noexcept;
  [[nodiscard]] bool merges(const request& what) const noexcept;
  [[nodiscard]] extent_to_open merged_extent(shard& in, const request& what, const range& extent,
                                             const lookup_result& seen) const noexcept PINFOLD_REQUIRES(in.mutex);
  [[nodiscard]] extent_to_open merged(shard& in, const request& what, extent_to_open from) const noexcept
      PINFOLD_REQUIRES(in.mutex);
  [[nodiscard]] bool may_register(const request& what, const extent_to_open& all) const noexcept;

  // --- opening (engine_open.cpp)
  [[nodiscard]] result<grant> open(shard& in, const request& what, const extent_to_open& to, lookup_result& seen,
                                   const deadlines& until) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  void check_borrowed(shard& in, entry& fresh, const request& what, access_flags borrowed) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] result<void> take_free_room(shard& in, entry& fresh, std::size_t bytes) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] result<grant> open_claimed(shard& in, entry& fresh, const request& what,
                                           const deadlines& until) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] new_entry claim(shard& in, const request& what, const extent_to_open& to, lookup_result& seen) noexcept
      PINFOLD_REQUIRES(in.mutex);
  [[nodiscard]] result<grant> finish(shard& in, entry& fresh, const request& what, result<opened>& made,
                                     closes_known before, const deadlines& until) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] bool opened_too_late(shard& in, entry& opening, const opened& made) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] result<void> after_refusal(shard& in, entry& opening, const error& refused, const request& what,
                                           const closes_known& before, const deadlines& until) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  /// The calling thread's turn to call the driver, where one thread at a time may (R63). Taken without the mutex.
  [[nodiscard]] std::unique_lock<std::recursive_mutex> driver_turn() noexcept {
    return options_.serial ? std::unique_lock(driver_turn_) : std::unique_lock<std::recursive_mutex>();
  }
  [[nodiscard]] result<opened> call_open(shard& in, entry& opening, const record& hot, void* argument) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] result<void> accept(shard& in, entry& opening, const opened& made, const deadlines& until) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  void publish(shard& in, entry& opening, record& hot, const opened& made) noexcept PINFOLD_REQUIRES(in.mutex);
  void shrink(shard& in, entry& opening, std::size_t bytes) noexcept PINFOLD_REQUIRES(in.mutex);
  [[nodiscard]] error abandon(shard& in, entry& opening, const error& why, bool outdated = false) noexcept
      PINFOLD_REQUIRES(in.mutex);
  [[nodiscard]] error take_back(shard& in, entry& opening, const opened& made, const error& why) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks

  // --- other shards (engine_elsewhere.cpp)
  /// What other shards have of an open's range.
  struct overlaps_elsewhere {
    access_flags around = access_flags::none;
    bool beside = false;
    std::uint64_t wide_before = 0;
    bool wide = false;    ///< the request belongs to a larger cell than the smallest
    bool opened = false;  ///< the request was a miss, and its entry is findable
  };
  [[nodiscard]] bool any_elsewhere(const shard& in, peer_id peer, const range& extent) noexcept;
  [[nodiscard]] std::optional<result<grant>> look_elsewhere(const shard& in, const request& what, const range& extent,
                                                            overlaps_elsewhere& other) noexcept;
  [[nodiscard]] std::optional<result<grant>> look_in(shard& other, const request& what, const range& extent,
                                                     overlaps_elsewhere& seen) noexcept
      PINFOLD_REQUIRES(other.mutex);  // unlocks
  void look_again_elsewhere(const shard& in, const request& what, const range& extent, overlaps_elsewhere& other,
                            result<grant>& granted) noexcept;
  void supersede_elsewhere(shard& in, const record& fresh, const overlaps_elsewhere& other) noexcept;
  [[nodiscard]] static bool still_findable(shard& in, const entry& fresh) noexcept;
  [[nodiscard]] bool covered_elsewhere(const shard& in, const entry& fresh) noexcept;

  // --- misses (engine_miss.cpp)
  [[nodiscard]] result<grant> grant_for(const request& what) noexcept;
  [[nodiscard]] bool is_plain_in(shard& in, const request& what, const range& extent, lookup_result& seen) noexcept
      PINFOLD_REQUIRES(in.mutex);
  entry& open_plainly(shard& in, const request& what, const range& extent, lookup_result& seen, ledger* mine,
                      result<grant>& granted) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] grant hit_under_mutex(const request& what, bool any) noexcept;
  [[nodiscard]] result<grant> acquire_from(shard& in, const request& what, const range& extent) noexcept;
  [[nodiscard]] static std::size_t open_not_hittable(const shard& in) noexcept
      PINFOLD_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
    return in.table.open_not_hittable();
  }
  [[nodiscard]] bool announce_level(const range& extent, overlaps_elsewhere& other) noexcept;
  [[nodiscard]] result<range> checked(const request& what) const noexcept;
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

  // --- requests in one shard (engine_acquire.cpp)
  [[nodiscard]] grant find_any(const request& what) noexcept;
  [[nodiscard]] grant find_in(shard& in, const request& what) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] grant hit_if_live(shard& in, const request& what) noexcept PINFOLD_REQUIRES(in.mutex);
  [[nodiscard]] grant hit(shard& in, entry& found, const request& what) noexcept PINFOLD_REQUIRES(in.mutex);
  /// Returns the grant of a pin on the record.
  [[nodiscard]] grant grant_on(pin held, const record& found, const request& what) const noexcept {
    const auto begin = what.wanted.begin;
    return {held, driver_.token_bytes > 0 ? local_address(found, begin) : reinterpret_cast<void*>(begin)};
  }
  /// Returns the grant of a pin that the entry counts.
  [[nodiscard]] grant grant_on(record& found, const request& what) const noexcept {
    return grant_on(reinterpret_cast<pin>(&found) | in_entry, found, what);
  }
  [[nodiscard]] result<grant> acquire_slowly(shard& in, const request& what, const range& extent,
                                             overlaps_elsewhere& other) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  static void look(shard& in, const request& what, const range& extent, const overlaps_elsewhere& other,
                   lookup_result& seen) noexcept PINFOLD_REQUIRES(in.mutex);
  [[nodiscard]] bool close_some_due(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] tl::unexpected<error> refused(shard& in, const error& why) noexcept PINFOLD_REQUIRES(in.mutex);
  [[nodiscard]] bool wait_for_overlapping_open(shard& in, const request& what, const range& extent,
                                               const deadlines& until, bool& patient) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] result<grant> join(shard& in, entry& opening, const request& what, const deadlines& until) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] result<void> wait_out(shard& in, entry& one, const deadlines& until) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] miss_reason reason_of_miss(shard& in, const request& what, const range& extent,
                                           const lookup_result& seen) const noexcept PINFOLD_REQUIRES(in.mutex);
  static void count_miss(shard& in, miss_reason reason) noexcept PINFOLD_REQUIRES(in.mutex);
  static void count_end(shard& in, const result<grant>& granted, miss_reason reason) noexcept
      PINFOLD_REQUIRES(in.mutex);
  [[nodiscard]] bool spare_entry(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);       // unlocks
  [[nodiscard]] bool make_spare_entry(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  void grow_hit_table(shard& in, unsigned step) noexcept PINFOLD_REQUIRES(in.mutex);   // unlocks
  [[nodiscard]] bool grow_pool(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);         // unlocks
  [[nodiscard]] bool grow_index(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);        // unlocks

  // --- the audit, and tracing (engine_audit.cpp, engine_trace.cpp)
  [[nodiscard]] bool passes_audit(const grant& granted) noexcept;
  void tell_failed_audit(const entry& found) noexcept;
  [[nodiscard]] result<grant> acquire_observed(const request& what) noexcept;
  [[nodiscard]] result<grant> acquire_traced(const request& what) noexcept;
  [[nodiscard]] result<grant> acquire_audited(const request& what) noexcept;
  [[nodiscard]] grant find_audited(const request& what) noexcept;
  void tell_request(const request& what, const result<grant>& granted, std::chrono::nanoseconds opened_for) noexcept;

  // --- several at once (engine_group.cpp)
  struct group;
  struct group_member;
  void claim_group(std::span<const request> what, group& claimed) noexcept;
  [[nodiscard]] bool served_elsewhere(const shard& in, const request& what, const range& extent,
                                      overlaps_elsewhere& other) noexcept;
  [[nodiscard]] bool claim_if_simple(shard& in, const request& what, group_member& next) noexcept
      PINFOLD_REQUIRES(in.mutex);
  void open_group(std::span<const request> what, group& claimed, std::span<result<grant>> granted) noexcept;
  [[nodiscard]] result<grant> conclude(const request& what, group_member& one, result<opened>& made,
                                       const deadlines& until) noexcept;

  // --- closing all that no lease holds (engine_flush.cpp)
  result<void> close_unpinned(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);                        // unlocks
  result<void> close_unheld(shard& in, const deadlines& until) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  result<void> close_all_unheld() noexcept;
  result<void> quiesce_without_hits() noexcept;
  result<void> close_all_and_remember() noexcept;
  result<void> wait_for_closes() noexcept;
  void stop_all_hits() noexcept;

  // --- what `quiesce` closed (engine_remember.cpp)
  void list_what_is_open(core::remembered_list& listed) const;
  [[nodiscard]] result<void> begin_quiescing() noexcept;
  void end_quiescing() noexcept;
  void begin_remembering(core::being_closed& mine);
  void end_remembering(core::being_closed& mine) noexcept;
  [[nodiscard]] static bool worth_remembering(const shard& in, const entry& one) noexcept PINFOLD_REQUIRES(in.mutex);
  [[nodiscard]] bool heed_what_is_said(core::restored_now& one) const noexcept;
  /// Around the visits to the shards that say that memory is gone, or need not be kept.
  class saying {
   public:
    saying(engine& on, core::said_now::of what, peer_id peer, const range& where) noexcept
        : on_(on), said_{what, peer, where} {}
    saying(const saying&) = delete;
    saying& operator=(const saying&) = delete;
    ~saying();
    void before_visit() noexcept;

   private:
    void mark(core::restored_now& one) const noexcept;
    engine& on_;
    core::said_now said_;
    bool linked_ = false;
  };
  void note_what_is_remembered() noexcept;
  void unpersist_open(peer_id peer, const range& where, saying* told = nullptr) noexcept;

  // --- the reaper, and the end (engine_reaper.cpp, engine_shutdown.cpp)
  void reap() noexcept;
  void wait_for_work() noexcept;
  [[nodiscard]] bool anything_to_watch() const noexcept;
  static void run_reaper(engine* home) noexcept;
  [[nodiscard]] bool stop_reaper(core::deadline until) noexcept;
  void end_requests() noexcept;
  void leave_to_leases(bool threads_ended) noexcept;
  void wait_for_others(core::deadline until) noexcept;
  void close_everything(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  void close_refused(core::deadline until) noexcept;
  void say_goodbye(std::uint64_t leases, std::size_t closes) noexcept;

  // --- hits without the mutex (engine_hit.cpp)
  [[nodiscard]] static record* first_that_covers(const shard& in, peer_id peer, const range& wanted) noexcept;
  [[nodiscard]] grant hit_first(record* one, std::uintptr_t begin, std::uintptr_t end, access_flags need) noexcept;
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

  /// Calls `stop(record*)` for records that may cover `wanted`, until it returns true; returns that record, or null.
  template <class F>
  [[gnu::always_inline]] record* find_record(peer_id peer, const range& wanted, F&& stop) const noexcept {
    const auto& map = shards_.map();
    if (!map.smallest_only()) [[unlikely]]
      return find_in_cells(peer, wanted, stop);
    return shards_[map.shard_at_smallest(wanted.begin)].hits.find(peer, wanted, stop);
  }
  template <class F>
  [[gnu::noinline]] record* find_in_cells(peer_id peer, const range& wanted, F& stop) const noexcept {
    const auto& map = shards_.map();
    record* found = nullptr;
    map.for_levels_from(map.level_of(wanted), [&](unsigned level) {
      found = shards_[map.shard_at(level, wanted.begin)].hits.find(peer, wanted, stop);
      return found != nullptr;
    });
    return found;
  }

  // The fields that a hit reads, on cache lines that are hardly ever written.
  alignas(64) hit_view view_;
  const core::cache_number number_;  // 0 when none was free: then every hit takes the mutex
  const std::uint64_t hits_before_;  // counted under this number before this cache was made
  const std::uint64_t finds_before_;
  const std::size_t token_offset_;
  const driver driver_;
  std::shared_ptr<void> backend_;
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
  const std::unique_ptr<observation::cache_page> page_;
  const bool meets_no_cancellation_point_;
  std::atomic<bool> hits_need_the_mutex_{false};  // set for good when the kernel refuses the barrier
  std::atomic<bool> silent_{false};               // the cache has ended: the sink is not called any more
  core::shared_counters counters_;

  std::recursive_mutex driver_turn_;  // with `serial`: a callback of the driver may release a lease, which may close

  core::budget budget_;
  core::shards shards_;
  core::debug_listing listed_;
  core::neighbour neighbour_{*this};
  std::shared_ptr<background_use> exporters_;  ///< of the thread that tells of their ends; null once the cache ends
  alignas(64) std::atomic<std::uint32_t> hand_{0};  // the shards that eviction visits, one after the other
  std::mutex gathering_;                            // before the shards' mutexes: one thread gathers the budget
  std::atomic<std::uint64_t> wide_published_{0};    // entries published that belong to larger cells than the smallest
  alignas(64) std::atomic<std::uint64_t> closes_done_{0};  // by the driver, in all shards
  core::change_signal changes_;
  std::atomic<core::deadline> last_vain_wait_{core::deadline{}};    // for transient pins
  std::atomic<core::deadline> all_leased_until_{core::deadline{}};  // for requests that may bypass the budget

  // Events. The mutex comes before the shards' mutexes.
  alignas(64) os::mutex events_mutex_;
  std::uint64_t cursor_ PINFOLD_GUARDED_BY(events_mutex_);  // the next number to read from the event log
  core::deadline unfinished_since_
      PINFOLD_GUARDED_BY(events_mutex_){};          // when a place on the event log was first found empty
  std::atomic<core::shard_set> pending_shards_{0};  // those with pending invalidations; changed under their mutexes
  mutable std::atomic<std::uint64_t> peak_leases_{0};

  core::rundown background_;

  // What `quiesce` closed. The mutex comes after the shards' mutexes; no other is taken under it.
  mutable std::mutex remembered_mutex_;
  core::remembered_list remembered_{driver_.token_bytes, watched_};
  core::being_closed* closing_ = nullptr;
  core::restored_now* restoring_ = nullptr;
  core::said_now* saying_ = nullptr;
  bool quiescing_ = false;
  std::uint64_t quiesces_ = 0;
  std::atomic<bool> anything_remembered_{false};  // changed under the mutex

  // The reaper. The mutex comes after the shards' mutexes.
  std::mutex reaper_mutex_;
  std::condition_variable reaper_wake_;
  std::condition_variable reaper_left_;
  bool reaper_asked_ = false;  // guarded by `reaper_mutex_`, as are the next two
  bool reaper_runs_ = false;
  bool reaper_stop_ = false;
  std::thread reaper_;
  std::atomic<std::size_t> owing_;  // shards, the reaper, background uses, the cache: the last that leaves frees it
};

}  // namespace pinfold::detail
