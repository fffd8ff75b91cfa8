// SPDX-License-Identifier: BSD-3-Clause
// Hits under the mutex, and which entries may be hit without it.
#include "core/sync_point.hpp"
#include "core/transition.hpp"

#include <algorithm>
#include <bit>

namespace pinfold::core {

namespace {

// Returns log2(a / b), rounded down, and 0 where a / b is less than 1. A division would take longer than the rest of
// the caller.
std::uint32_t floor_of_log2(std::size_t a, std::size_t b) noexcept {
  if (a < b || b == 0) return 0;
  const auto most = std::bit_width(a) - std::bit_width(b);
  return static_cast<std::uint32_t>(b << most <= a ? most : most - 1);
}

}  // namespace

// Sets the shift by the average size, so that requests inside a region mostly share a hint, and neighbouring regions do
// not. Not after each entry: a few hardly change the average of many, which requires reading all shards.
void entry_table::adjust_hints() noexcept {
  const auto& room = parts_.room.whole();
  const auto shift = floor_of_log2(room.bytes_now(), room.count_now());
  auto& seen = parts_.view.shift;
  if (seen.load(std::memory_order_relaxed) != shift) seen.store(shift, std::memory_order_relaxed);
  until_hints_ = static_cast<std::uint32_t>(std::clamp<std::size_t>(parts_.room.count_now() / 8, 1, 64));
}

void entry_table::sample(entry& found) noexcept {
  using detail::ledger;
  if (counts_every_hit_) {
    found.count_hits(1);
  } else if (++hits_seen_ % ledger::sampling == 0) {
    found.count_hits(ledger::sampling);
  }
}

// Takes an entry out of the ring: eviction's hand does not visit it from now on.
void entry_table::leave_ring(entry& live) noexcept {
  if (live.in == index::list_id::reusable) reusable_.remove(&live);
  if (live.in != index::list_id::leased) return;
  PINFOLD_ASSERT(newly_leased_ == 0, "an entry is settled before it is changed again");
  leased_.remove(&live);
  if (live.hot()->is(record::hittable)) live.hot()->set(record::plain_release);
}

void entry_table::make_persistent(entry& found) noexcept {
  PINFOLD_ASSERT(!found.bypass, "a bypass ends with its last lease");
  if (found.persistent) return;
  leave_ring(found);
  found.persistent = true;
}

void entry_table::count_hit(entry& found, const request& what) noexcept {
  const transition of(*this, found);
  parts_.counts.add(counter::hits);
  parts_.counts.add(counter::valid);
  sample(found);
  if (persists(what)) make_persistent(found);
}

void entry_table::revive(entry& evicting, index::entry_list& into) noexcept {
  const transition of(*this, evicting);
  PINFOLD_ASSERT(evicting.in == index::list_id::evicting, "only a settled entry is revived");
  evicting_.remove(&evicting);
  evicting.become(entry_state::live);
  if (reusable(evicting)) into.push_back(&evicting);
  allow_hits(evicting, *evicting.hot(), hittable_bits(evicting));
}

void entry_table::revive(entry& evicting) noexcept { revive(evicting, reusable_); }

void entry_table::hit(entry& found, const request& what) noexcept {
  PINFOLD_ASSERT(found.findable() && found.now() != entry_state::opening, "a hit hands out what is open");
  if (found.now() == entry_state::evicting) revive(found);
  found.own_pins().fetch_add(1, std::memory_order_seq_cst);
  found.hot()->visited.store(1, std::memory_order_relaxed);
  count_hit(found, what);
  record& hot = *found.hot();
  if (!hot.is(record::listed))
    allow_hits(found, hot, hittable_bits(found));  // there was no room in the table when it was published
}

void entry_table::hit_for_find(entry& found) noexcept {
  PINFOLD_ASSERT(found.findable() && found.now() != entry_state::opening, "a hit hands out what is open");
  parts_.counts.add(counter::valid);
  parts_.counts.add(counter::found);
  if (found.now() == entry_state::evicting) revive(found);
  found.own_pins().fetch_add(1, std::memory_order_seq_cst);
  found.hot()->visited.store(1, std::memory_order_relaxed);
}

// Makes a live entry hittable without the mutex, except a bypass, or where hits need the mutex.
void entry_table::allow_hits(const entry& live, record& hot, std::uint32_t bits) noexcept {
  PINFOLD_ASSERT(live.now() == entry_state::live, "only live entries are hit");
  if (parts_.hits_need_the_mutex.load(std::memory_order_relaxed) || live.bypass || ended_ || hits_stopped_ > 0) return;
  const bool listed = hot.is(record::listed) || parts_.hit_table.insert(&hot);
  if (parts_.hit_table.growing()) [[unlikely]]
    parts_.hit_table.move();  // also a full table, which other threads filled before the larger one was there
  if (!listed) return;
  PINFOLD_ASSERT(until_hints_ > 0, "the hints were adjusted when their count ran out");
  if (--until_hints_ == 0) [[unlikely]]
    adjust_hints();
  const bool was_counted = !hot.is(record::hittable);
  hot.set(bits | static_cast<std::uint32_t>(live.access) << record::rights_shift | parts_.view.number_in_word);
  PINFOLD_ASSERT(!was_counted || open_not_hittable() > 0, "an open entry out of reach of hits is counted");
  if (was_counted) open_not_hittable_.store(open_not_hittable() - 1, std::memory_order_release);
}

void entry_table::grow_hit_table(index::hit_table::memory larger) noexcept { parts_.hit_table.grow(std::move(larger)); }

void entry_table::stop_hits_for_good() noexcept {
  PINFOLD_ASSERT(parts_.hits_need_the_mutex.load(std::memory_order_seq_cst), "no entry becomes hittable from now on");
  index_.for_each([this](entry& one) { stop_hits(one); });
}

void entry_table::stop_all_hits() noexcept {
  ++hits_stopped_;
  index_.for_each([this](entry& one) {
    sync_point();
    stop_hits(one);
  });
}

void entry_table::resume_hits() noexcept {
  PINFOLD_ASSERT(hits_stopped_ > 0, "hits were stopped");
  if (--hits_stopped_ > 0) return;
  index_.for_each([this](entry& one) {
    if (one.now() == entry_state::live) allow_hits(one, *one.hot(), hittable_bits(one));
  });
}

void entry_table::end() noexcept {
  PINFOLD_ASSERT(!ended_, "a cache ends once");
  ended_ = true;
  index_.for_each([this](entry& one) { stop_hits(one); });
}

void entry_table::stop_hits(entry& one) noexcept {
  if (!one.hot()->is(record::hittable)) return;
  PINFOLD_ASSERT(one.now() == entry_state::live, "only live entries are hittable");
  open_not_hittable_.store(open_not_hittable() + 1, std::memory_order_relaxed);
  one.hot()->clear(record::hittable | record::plain_release);
}

// Removes from the hit table an entry that is no longer to be handed out. Requires that its hits were stopped.
void entry_table::leave_hit_table(entry& one) noexcept {
  PINFOLD_ASSERT(!one.hot()->is(record::hittable), "hits end before the record leaves the table");
  if (one.hot()->is(record::listed)) parts_.hit_table.erase(one.hot());
  if (one.now() != entry_state::live && one.now() != entry_state::evicting) return;
  PINFOLD_ASSERT(open_not_hittable() > 0, "an open entry is in reach of hits, or counted");
  open_not_hittable_.store(open_not_hittable() - 1, std::memory_order_relaxed);
}

}  // namespace pinfold::core
