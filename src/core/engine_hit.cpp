// SPDX-License-Identifier: BSD-3-Clause
// Hits. A hit stores a pin in memory of its own thread and only then looks at the record. A thread that wants an entry
// gone first makes it unhittable, then passes a barrier on all threads, and only then counts the pins.
// `docs/protocol.md` has the argument.
#include "core/engine.hpp"
#include "core/sync_point.hpp"
#include "os/no_cancellation.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace pinfold::detail {

std::atomic<std::uint32_t> releases_awaited{0};

namespace {

pin pin_now(ledger* mine, record* one) noexcept {
  if (mine != nullptr) [[likely]] {
    pin_cell& cell = mine->cell_of(one);
    if (cell.load(std::memory_order_acquire) == 0) [[likely]] {
      store_before_barrier(cell, reinterpret_cast<std::uintptr_t>(one));
      return reinterpret_cast<pin>(&cell) | in_cell;
    }
    if (mine->add(one)) return reinterpret_cast<pin>(one);
  }
  index::record_page::entry_of(one).own_pins().fetch_add(1, std::memory_order_seq_cst);
  return reinterpret_cast<pin>(one) | in_entry;
}

// Returns log2(a / b), rounded down, and 0 where a / b is less than 1. A division takes longer than all the rest of its
// caller.
std::uint32_t floor_of_log2(std::size_t a, std::size_t b) noexcept {
  if (a < b || b == 0) return 0;
  const auto most = std::bit_width(a) - std::bit_width(b);
  return static_cast<std::uint32_t>(b << most <= a ? most : most - 1);
}

}  // namespace

const record* unpin_slowly(pin held) noexcept {
  const record* one = record_of(held);
  ledger* mine = ledger::of_this_thread();
  if ((held & in_entry) != 0 || mine == nullptr || !mine->subtract(one))
    index::record_page::entry_of(one).own_pins().fetch_sub(1, std::memory_order_seq_cst);
  order_on_hit();
  return one->is(record::hittable) && releases_awaited.load(std::memory_order_relaxed) == 0 ? nullptr : one;
}

// Gives back a pin that is not handed out. That is a release like any other: a closing thread may have seen the pin.
void give_up(pin held, asked_by caller, std::uint32_t cache) noexcept {
  const record* unpinned = unpin(held);
  if (unpinned == nullptr) return;
  const no_cancellation guard;
  static_cast<void>(engine::finish_release(unpinned, caller, cache));  // if a close fails, the entry is quarantined
}

void sample_hits(const record* found) noexcept { index::record_page::entry_of(found).count_hits(ledger::sampling); }

// Waits for a release. The first call only announces the waiter and returns true: releases before the announcement did
// not notify, so the caller must check again first.
bool engine::wait_for_release(release_watch& watch, core::deadline until) noexcept {
  if (watch.begun()) return wait_for(this, until);
  watch.begin();
  order_hits();
  return true;
}

// Returns a view that is never current.
const hit_view& engine::no_hits() noexcept {
  static const std::atomic<std::uint64_t> never{1};
  static const hit_view none{&never, &never, 0, 0, 0, 12, 0};
  return none;
}

void engine::count_hit(ledger* mine, record* found, asked_by caller) noexcept {
  if (found->visited.load(std::memory_order_relaxed) == 0) found->visited.store(1, std::memory_order_relaxed);
  if (caller == asked_by::find)
    return mine != nullptr ? mine->count_find(number_) : counters_.add(core::shared_counter::finds_elsewhere);
  if (mine == nullptr) return counters_.add(core::shared_counter::hits_elsewhere);
  if (mine->count_hit(number_)) sample_hits(found);
}

grant engine::look_up(std::uintptr_t begin, std::uintptr_t end, access_flags need, asked_by caller) noexcept {
  if (options_.strict && monitors_ != nullptr) monitors_->wait_for_events();
  ledger* mine = ledger::of_this_thread();
  pin held = 0;
  hits_.find({}, {begin, end}, [&](record* candidate) {
    if (!candidate->covers(begin, end)) return false;
    held = pin_now(mine, candidate);
    order_on_hit();
    if (view_.current() && view_.serves(*candidate, begin, end, need)) [[likely]] {
      if (mine != nullptr) mine->set_hint(view_.key(begin), candidate);
      count_hit(mine, candidate, caller);
      return true;
    }
    give_up(std::exchange(held, 0), caller, number_);
    return false;
  });
  return {held, reinterpret_cast<void*>(begin)};
}

bool engine::serves(const record& one, peer_id peer, const range& wanted, const void* token) const noexcept {
  if (!view_.current() || !view_.serves(one, wanted.begin, wanted.end, access_flags::none)) return false;
  const auto* own = reinterpret_cast<const std::byte*>(&one) + token_offset_;
  return imported_part_of(one).peer == peer && std::memcmp(own, token, driver_.token_bytes) == 0;
}

grant engine::look_up(peer_id peer, const range& wanted, const void* token, asked_by caller) noexcept {
  ledger* mine = ledger::of_this_thread();
  grant got;
  hits_.find(peer, wanted, [&](record* candidate) {
    if (!candidate->covers(wanted.begin, wanted.end)) return false;
    got.held = pin_now(mine, candidate);
    order_on_hit();
    if (serves(*candidate, peer, wanted, token)) [[likely]] {
      got.data = local_address(*candidate, wanted.begin);
      if (mine != nullptr) mine->set_hint(view_.key(peer, wanted.begin), candidate);
      count_hit(mine, candidate, caller);
      return true;
    }
    give_up(std::exchange(got.held, 0), caller, number_);
    return false;
  });
  return got;
}

grant engine::look_up(const request& what) noexcept {
  if (hits_need_the_mutex() || what.persistent || what.unshared || what.unbudgeted) return {};
  const auto [begin, end] = what.wanted;
  if (driver_.token_bytes > 0) return look_up(what.peer, what.wanted, what.token, asked_by::acquire);
  if (const auto held = hinted_hit(inline_view(), begin, end, what.need); held != 0)
    return {held, reinterpret_cast<void*>(begin)};
  return look_up(begin, end, what.need, asked_by::acquire);
}

// Makes a live entry hittable without the mutex, unless its last release, or every hit, has to be seen.
void engine::allow_hits(const entry& live, record& hot) noexcept {
  if (hits_need_the_mutex() || live.bypass || closed_ || hits_stopped_ > 0) return;
  if (!hot.is(record::listed) && !hits_.insert(&hot)) return;
  // The shift follows the average size: then requests inside a region mostly share a hint, and neighbouring regions do
  // not.
  const auto shift = floor_of_log2(budget_.bytes_now(), budget_.count_now());
  if (view_.shift.load(std::memory_order_relaxed) != shift) view_.shift.store(shift, std::memory_order_relaxed);
  hot.set(record::hittable | static_cast<std::uint32_t>(live.access) << record::rights_shift | view_.number_in_word);
}

// Returns the number of leases, and for moments also of openers and of threads that wait for them. Reads all entries
// and ledgers.
std::uint64_t engine::leases_out() const noexcept {
  std::int64_t all = 0;
  pool_.for_each(
      [&](index::record_page& page, std::size_t number) { all += index::counted_in(*page.own_pins(number)); });
  ledger::for_each([&](const record* one, std::int64_t count) {
    if (index::record_page::of(one).owner.load(std::memory_order_acquire) == &control_) all += count;
  });
  return all < 0 ? 0 : static_cast<std::uint64_t>(all);
}

}  // namespace pinfold::detail
