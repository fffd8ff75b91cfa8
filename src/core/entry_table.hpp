// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The entries of one cache, and every transition of the protocol. `docs/understand/protocol.md` is its specification;
/// the functions are spread over `entry_table_*.cpp`, one idea a file.
#pragma once

#include "core/budget.hpp"
#include "core/counters.hpp"
#include "core/extent_to_open.hpp"
#include "core/history.hpp"
#include "core/lookup_result.hpp"
#include "core/pending_invalidations.hpp"
#include "index/entry.hpp"
#include "index/entry_list.hpp"
#include "index/entry_pool.hpp"
#include "index/hit_table.hpp"
#include "index/range_index.hpp"
#include "invalidation/registered_filter.hpp"

#include <pinfold/detail/engine.hpp>
#include <pinfold/detail/hit.hpp>
#include <pinfold/options.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace pinfold::core {

using detail::driver;
using detail::opened;
using detail::record;
using detail::registration;
using detail::request;
using index::entry;

/// The states, flags and lists of all entries, the index over them, and their room in the budget. No function gives the
/// mutex up, calls a driver or a monitor, waits, tells the sink, or wakes a thread: the engine does that.
///
/// After *hittable* is cleared, a hit may still hold a pin that no sum shows. Until the next barrier the entry is
/// *unsettled*; then `settle` revives, holds or queues it. The caller passes the barrier, once for all unsettled
/// entries, before it gives the mutex up.
///
/// Not thread-safe: guarded by the shard's mutex.
class entry_table {
 public:
  /// The parts that the table shares with the engine, and with hits, which read them without the mutex.
  struct shared_parts {
    index::hit_table& hit_table;
    detail::hit_view& view;
    const std::atomic<bool>& hits_need_the_mutex;
    index::entry_pool& pool;
    budget::share& room;
    guarded_counters& counts;
    invalidation::registered_filter* registered;  ///< null for imported memory
  };

  entry_table(const driver& table, const cache_options& options, const shared_parts& parts) noexcept;
  ~entry_table();
  entry_table(const entry_table&) = delete;
  entry_table& operator=(const entry_table&) = delete;

  // --- finding (entry_table_find.cpp)
  /// Visits the entries that overlap `extent`, which contains the request, until it finds one to hand out at once.
  void scan(const request& what, const range& extent, lookup_result& seen) const noexcept;
  /// Returns whether no entry overlaps `extent`; if so, `seen` has the place for one. May return false even if none
  /// does.
  [[nodiscard]] bool finds_alone(peer_id peer, const range& extent, lookup_result& seen) const noexcept {
    return seen.alone = index_.find_alone(peer, extent, seen.place);
  }
  /// Returns a findable entry there that is `opening`, or null.
  [[nodiscard]] const entry* opening_there(peer_id peer, const range& where) const noexcept;
  /// Returns whether any entry there is pinned, or being opened.
  [[nodiscard]] bool is_pinned_there(peer_id peer, const range& where) const noexcept;
  /// Notes a pin on an entry that perhaps only this pin keeps open.
  void note_pinned(const entry& kept_open) noexcept;
  /// Returns whether a pin that was noted since the last call may be transient: a thread may move from one entry to the
  /// next with such a pin.
  [[nodiscard]] bool take_doubt() noexcept { return std::exchange(saw_transient_, false); }
  /// Returns whether pins on the entry may be transient: a thread has at most one such pin, the calling thread none.
  [[nodiscard]] static bool may_be_transient(const entry& pinned) noexcept;
  [[nodiscard]] miss_reason past_of(peer_id peer, std::uintptr_t begin) const noexcept {
    return history_.recall(peer, begin);
  }
  /// Returns what was closed and why, for readers of the process's memory.
  [[nodiscard]] const history& past() const noexcept { return history_; }
  /// Calls `stop(entry&)` for the entries that requests may find, and for some others, until it returns true. Returns
  /// that entry, or null.
  template <class F>
  entry* find_overlap(peer_id peer, const range& where, F&& stop) const {
    return index_.find_overlap(peer, where, stop);
  }
  /// Calls `stop(entry&)` for all entries, until it returns true.
  template <class F>
  void visit_overlaps(peer_id peer, const range& where, F&& stop) const {
    if (index_.find_overlap(peer, where, stop) == nullptr) held_index_.find_overlap(peer, where, stop);
  }
  template <class F>
  void for_each(F&& each) const {
    index_.for_each(each);
    held_index_.for_each(each);
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// Returns whether `one` stays open after its last release.
  [[nodiscard]] bool kept(const entry& one) const noexcept { return (retain_ || one.persistent) && !one.bypass; }

  // --- memory for new entries
  /// Begins to put the slots into a larger hit table.
  void grow_hit_table(index::hit_table::memory larger) noexcept;
  /// Returns whether `claim` needs no more memory. If not, the caller provides the missing memory, without the mutex.
  [[nodiscard]] bool ready() const noexcept {
    return parts_.hit_table.wants() == 0 && ready_but_for_hits() && !wants_room_apart();
  }
  [[nodiscard]] bool ready_but_for_hits() const noexcept { return !parts_.pool.empty() && index_ready(); }
  /// Every opening entry may have to be inserted once more, with the range that was really opened.
  [[nodiscard]] bool index_ready() const noexcept { return index_.ready(openings_ + 2); }
  /// Returns whether `set_held_apart` needs memory. Without it, requests visit entries that only leases hold.
  [[nodiscard]] bool wants_room_apart() const noexcept { return next_apart_ != nullptr && !held_index_.ready(); }
  [[nodiscard]] std::size_t next_index_chunk() const noexcept { return index_to_grow().next_chunk(); }
  void adopt(index::range_index::chunk made) noexcept { index_to_grow().adopt(std::move(made)); }
  /// Moves some of the entries that only their leases keep, of which there may be many, out of the index in which
  /// requests look, as far as there is memory. Invalidates every place in the index that a look-up found.
  void set_held_apart() noexcept;

  // --- opening (entry_table_open.hpp, entry_table_open.cpp)
  /// An entry and its record: saves the caller computing the address.
  struct new_entry {
    entry& one;
    record& hot;
  };
  /// `free` to `opening`: makes an entry for the request and indexes it, before the driver is asked, so that
  /// invalidations meanwhile find it. Until its opener calls `publish`, `fail` or `quarantine_opened`, no other thread
  /// changes its state. Requires `ready`.
  [[nodiscard]] new_entry claim(const request& what, const extent_to_open& to, lookup_result& seen,
                                pending_invalidations& pending) noexcept;
  void enter_driver(entry& opening) noexcept;
  void leave_driver(entry& opening) noexcept;
  /// Reindexes the entry with the range that the driver opened, so that conflicts are found there. Only imports are
  /// opened with another range than requested.
  void cover(entry& opening, const range& covered) noexcept;
  /// Makes a doomed entry findable again after its registration was closed before any thread got it.
  void undoom(entry& opening, pending_invalidations& pending) noexcept;
  /// Hides an opening entry because no monitor would report the loss of its memory: it serves the requests that already
  /// wait for it, and is not kept.
  void make_unshared(entry& opening) noexcept;
  /// Writes the fields that leases and hits read. They stay constant as long as any thread may read them.
  void write_record(record& hot, const opened& made) const noexcept;
  /// `opening` to `live`, or to `draining` if it is doomed. Requires that the opener has pinned the record. May leave
  /// entries that it supersedes unsettled.
  void publish(entry& opening, record& hot, const opened& made) noexcept;
  /// `opening` to `failed`, and out of the index.
  void fail(entry& opening) noexcept;
  /// `opening` to `quarantined`: the driver opened it, it must not stay, and the driver refused to close it.
  void quarantine_opened(entry& opening) noexcept;
  /// `failed` to `free`.
  void recycle(entry& failed) noexcept;
  [[nodiscard]] std::size_t openings() const noexcept { return openings_; }
  [[nodiscard]] std::size_t opens_in_driver() const noexcept { return opens_in_driver_; }

  // --- room (entry_table_room.cpp)
  /// Takes room in the budget for an opening entry, all or nothing.
  [[nodiscard]] bool take_room(entry& opening, std::size_t more_bytes, std::size_t more_count) noexcept;
  /// Notes room that the caller took.
  void note_room(entry& opening, std::size_t more_bytes, std::size_t more_count) noexcept;
  void go_without_room(entry& opening, std::size_t bytes) noexcept;
  /// Gives back the room of the entry: a bypass is outside the budget as a whole.
  void turn_into_bypass(entry& opening, std::size_t more_bytes) noexcept;
  void shrink(entry& opening, std::size_t bytes) noexcept;
  /// Counts bytes that are open already.
  void charge(entry& opening, std::size_t bytes) noexcept;

  // --- hits (entry_table_hits.cpp)
  /// Pins an entry that a request found under the mutex, and counts the hit.
  void hit(entry& found, const request& what) noexcept;
  /// Counts a hit of an entry that the calling thread has pinned already.
  void count_hit(entry& found, const request& what) noexcept;
  /// `evicting` to `live`.
  void revive(entry& evicting) noexcept;
  /// Puts an entry that was set aside back into the ring, because a lease on it ended.
  void put_back(entry& released) noexcept;
  /// Pins an entry for `find`.
  void hit_for_find(entry& found) noexcept;
  /// Ends hits without the mutex for good, in a cache whose hits need it from now on.
  void stop_hits_for_good() noexcept;
  /// Stops all hits without the mutex until `resume_hits`. A barrier has to follow.
  void stop_all_hits() noexcept;
  void resume_hits() noexcept;
  /// Returns the number of open entries that only a thread with the mutex finds. Any thread may call this: without the
  /// mutex, the number may be old.
  [[nodiscard]] std::size_t open_not_hittable() const noexcept {
    return open_not_hittable_.load(std::memory_order_relaxed);
  }
  /// Closes the table to requests: from now on every request and every release takes the mutex. A barrier has to
  /// follow.
  void end() noexcept;
  [[nodiscard]] bool ended() const noexcept { return ended_; }

  // --- taking entries out of the reach of hits (entry_table_evict.cpp)
  /// `live` to `evicting`, unsettled: it is `live` again after `settle` if a hit pinned it before the barrier.
  void begin_evict(entry& live) noexcept;
  /// Moves eviction's hand on, and begins to evict a few entries, one of `of`. The hand passes no entry more often than
  /// `rounds`. Sets leased entries aside, unsettled: `settle` puts back those without a pin.
  void begin_evict_victims(std::size_t of, unsigned rounds) noexcept;
  /// Begins to evict all entries that eviction's hand visits, pinned or not.
  void begin_evict_all() noexcept;
  /// Returns whether eviction's hand has no entry to visit. Then every entry that could be evicted is `evicting` or was
  /// set aside: a lease on the latter has not ended, or its release waits for the mutex.
  [[nodiscard]] bool all_set_aside() const noexcept { return reusable_.empty(); }
  /// Begins to evict the entries that eviction's hand visits and that have no pin.
  void begin_evict_unpinned() noexcept;
  /// Begins to evict the imports that were not used since the last sweep.
  void begin_evict_idle() noexcept;
  /// Revives evicting entries until no more than a batch of them is left.
  void revive_all_but_a_batch() noexcept;

  // --- hiding entries (entry_table_retire.cpp)
  /// Retires live entries whose range and access `by`, a new entry, covers; `by` is null if that is in another table. A
  /// lease on a retired entry keeps it open until release (R23).
  void supersede(const range& covered, access_flags access, const entry* by) noexcept;
  /// Returns whether another entry, which is not a bypass, covers the range and the access of `lesser`.
  [[nodiscard]] bool covers(const entry& lesser) const noexcept;
  /// Retires an entry that one in another table covers, if it is still live and may be retired.
  void retire_covered(entry& covered) noexcept;
  /// Hides an entry from all requests: it becomes unsettled, or, if it is `opening`, doomed.
  void retire(entry& old) noexcept;
  /// Retires an entry whose memory is gone.
  void invalidate(entry& gone) noexcept;
  /// Invalidates findable entries, and hidden entries that are still pinned, of eras before `before`, and with that
  /// token if it is not null. Leaves in `left` the part of the range from the first entry on that did not fit into
  /// `invalidated`, or nothing; entries that reach into that part from before are marked already. Returns how many it
  /// wrote to `invalidated`.
  [[nodiscard]] std::size_t invalidate_next(peer_id peer, range& left, std::span<entry*> invalidated,
                                            std::uint32_t before = UINT32_MAX, const void* token = nullptr) noexcept;
  /// Retires live entries that are not kept and were released. Their sums are exact: they were never hit without the
  /// mutex.
  void retire_released() noexcept;
  /// Retires the evicting entries, as unused for too long.
  void retire_idle() noexcept;
  /// Ends the persistence of an entry there. Returns it, or null when there is none.
  [[nodiscard]] entry* unpersist_next(peer_id peer, const range& where) noexcept;
  void forget_eras() noexcept;
  [[nodiscard]] bool settled() const noexcept { return retired_.empty() && chosen_.empty() && newly_leased_ == 0; }
  /// Sorts the unsettled entries by their pins. Requires a barrier since they were chosen. Returns how many closes
  /// became due.
  std::size_t settle() noexcept;

  // --- closing (entry_table_close.cpp)
  /// Queues the close of a draining entry without a pin.
  void queue(entry& draining) noexcept;
  /// Queues the closes of all draining entries without a pin. Their last releases, which have yet to take the mutex,
  /// will find nothing to do. The sums are exact: these entries had their barrier. Returns how many closes became due.
  std::size_t queue_released() noexcept;
  /// Returns the driver's object of an entry that is open and not being closed.
  [[nodiscard]] registration object_of(const entry& one) const noexcept;
  /// To `closing`. Returns the registration that the driver has to close.
  [[nodiscard]] registration begin_close(entry& closable) noexcept;
  /// `closing` to `free`, and out of the index.
  void finish_close(entry& closing) noexcept;
  /// `closing` to `quarantined`.
  void quarantine(entry& closing) noexcept;
  /// The close of a registration that was never published: no entry changes its state.
  void begin_close_unpublished() noexcept { ++closes_in_flight_; }
  void finish_close_unpublished(const entry& opening, bool closed) noexcept;
  /// Marks the openers that the driver may have refused because of this entry, and that have not yet looked for the
  /// obstacle: they have to ask the driver again.
  void mark_disturbed(const entry& closed) noexcept;
  void move_to_back(entry& quarantined) noexcept;
  [[nodiscard]] entry* first_due() const noexcept { return queued_.front(); }
  [[nodiscard]] entry* first_evicting() const noexcept { return evicting_.front(); }
  [[nodiscard]] entry* first_quarantined() const noexcept { return quarantined_.front(); }
  [[nodiscard]] std::size_t quarantined() const noexcept { return quarantined_.size(); }
  [[nodiscard]] bool any_closable() const noexcept { return !queued_.empty() || !evicting_.empty(); }
  [[nodiscard]] std::size_t closes_in_flight() const noexcept { return closes_in_flight_; }
  /// Prepares to close everything now, also under leases, which read as closed from here on. An entry without a pin
  /// gets no lease any more: a pin that comes later is transient, and no reason to keep the registration open.
  void prepare_final_close() noexcept;
  /// Counts the eviction of an entry that is about to be closed for room.
  void count_eviction(const entry& victim) noexcept;

 private:
  class transition;

  /// Asserts that the combination of state, flags, list and record bits is in the table of docs/understand/protocol.md.
  void check(const entry& one) const noexcept;
  [[nodiscard]] bool same_token(const entry& one, const void* token) const noexcept;
  /// Returns whether requests ignore hidden entries.
  [[nodiscard]] bool ignores_hidden() const noexcept { return token_bytes_ == 0 && allows_duplicates_; }
  [[nodiscard]] const index::range_index& index_to_grow() const noexcept {
    return index_ready() ? held_index_ : index_;
  }
  [[nodiscard]] index::range_index& index_to_grow() noexcept { return index_ready() ? held_index_ : index_; }
  void hold(entry& pinned) noexcept;
  void stop_holding(entry& held) noexcept;
  void scan_local(const request& what, const range& extent, lookup_result& seen) const noexcept;
  /// Returns whether eviction's hand visits `one`.
  [[nodiscard]] bool reusable(const entry& one) const noexcept {
    return one.now() == entry_state::live && retain_ && !one.bypass && !one.persistent;
  }
  [[nodiscard]] static std::int32_t this_thread() noexcept {
    return known_thread != 0 ? known_thread : ask_for_thread();
  }
  static std::int32_t ask_for_thread() noexcept;
  void write_token(record& hot, const request& what) const noexcept;
  void claim_specially(entry& fresh, const request& what) noexcept;
  void publish_doomed(entry& opening) noexcept;
  void publish_near(entry& live) noexcept;
  void note_overlap(entry& fresh) noexcept;
  void leave_index(entry& gone) noexcept;
  void give_room_back(entry& closed) noexcept;
  void sample(entry& found) noexcept;
  /// Returns whether the entry that serves the request becomes persistent.
  [[nodiscard]] static bool persists(const request& what) noexcept {
    return what.persistent &&
           (what.meanwhile == nullptr || !what.meanwhile->unpersisted.load(std::memory_order_relaxed));
  }
  void make_persistent(entry& found) noexcept;
  void revive(entry& evicting, index::entry_list& into) noexcept;
  /// Returns the bits of the word with which the entry is hittable.
  [[nodiscard]] static std::uint32_t hittable_bits(const entry& live) noexcept {
    return live.in == index::list_id::leased ? record::hittable : record::hittable | record::plain_release;
  }
  void allow_hits(const entry& live, record& hot, std::uint32_t bits) noexcept;
  void stop_hits(entry& one) noexcept;
  void leave_hit_table(entry& one) noexcept;
  void adjust_hints() noexcept;
  void spare(entry& spared) noexcept;
  void set_aside(entry& leased) noexcept;
  void leave_ring(entry& live) noexcept;
  void take_out(entry& closable) noexcept;

  [[gnu::tls_model("initial-exec")]] static constinit thread_local std::int32_t known_thread;  // its id, or 0
  static const int forgets_thread;  // set at load time, by registering the fork handler that clears `known_thread`

  const shared_parts parts_;
  const std::size_t token_bytes_;
  const std::size_t object_bytes_;
  const std::size_t object_offset_;
  const std::size_t token_offset_;
  const bool allows_duplicates_;
  const bool retain_;
  const bool counts_every_hit_;

  index::range_index index_;       // entries that the driver has open, or is asked to open
  index::range_index held_index_;  // those of them that are `apart`: draining, so that only leases hold them

  // The fields that every miss changes, on one cache line, as threads change them in turn.
  alignas(64) guarded_number size_;                       // entries in the index
  guarded_number openings_;                               // entries that are `opening`
  std::uint32_t opens_in_driver_ = 0;                     // opens that the driver is working on
  std::uint32_t until_hints_ = 1;                         // entries to become hittable before the hints are adjusted
  std::atomic<std::size_t> open_not_hittable_{0};         // entries that are live or evicting, and not hittable
  index::entry_list reusable_{index::list_id::reusable};  // live and to be kept: the ring of the hand

  index::entry_list leased_{index::list_id::leased};  // live, to be kept, and pinned when the hand passed
  std::size_t newly_leased_ = 0;                      // the last of them, unsettled; 0 when the mutex is free
  index::entry_list chosen_{index::list_id::chosen};  // evicting, unsettled; empty when the mutex is free
  index::entry_list evicting_{
      index::list_id::evicting};  // no hits, and no pin before the end of the cache: closed when room is needed
  index::entry_list retired_{index::list_id::retired};  // draining, unsettled; empty when the mutex is free
  index::entry_list held_{index::list_id::held};        // draining, and pinned when last checked
  entry* next_apart_ = nullptr;                         // from it on, no held entry is `apart`, and all will be
  index::entry_list queued_{index::list_id::queued};    // draining without a pin: closes that are due
  index::entry_list quarantined_{index::list_id::quarantined};
  guarded_number closes_in_flight_;
  bool saw_transient_ = false;  // whether a pin may have been transient, since `take_doubt`
  std::uint64_t hits_seen_ = 0;
  std::size_t hits_stopped_ = 0;  // quiesces in progress: no entry becomes hittable
  bool ended_ = false;
  history history_;
};

}  // namespace pinfold::core
