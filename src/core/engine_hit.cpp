// SPDX-License-Identifier: BSD-3-Clause
// Hits. A hit stores a pin in memory of its own thread and only then looks at the record. A thread that wants to close
// an entry first clears *hittable*, then passes a barrier on all threads, and only then counts the pins.
// `docs/understand/protocol.md` has the argument.
#include "core/engine.hpp"
#include "core/pin_now.hpp"
#include "core/sync_point.hpp"
#include "os/no_cancellation.hpp"

#include <cstring>

namespace pinfold::detail {

using core::pin_in_cell;
using core::pin_now;

std::atomic<std::uint32_t> releases_awaited{0};

namespace {

[[gnu::noinline]] grant sampled(grant hit) noexcept {
  sample_hits(record_of(hit.held));
  return hit;
}

// The thread that looks up a record, the call that it serves, and the number of the cache.
struct requester {
  ledger* mine;
  asked_by caller;
  std::uint32_t cache;
};

struct pinned_record {
  pin held = 0;
  record* found = nullptr;
};

// Returns a function that pins a record if it serves the request.
template <class Serves>
auto pins_if(pinned_record& got, const range& wanted, requester by, const Serves& serves) noexcept {
  return [&got, wanted, by, &serves](record* candidate) {
    if (!candidate->covers(wanted.begin, wanted.end)) return false;
    got.held = pin_now(by.mine, candidate);
    order_on_hit();
    if (serves(*candidate)) return true;
    give_up(std::exchange(got.held, 0), by.caller, by.cache);
    return false;
  };
}

// A call of memcmp(3) takes longer than the comparison. CUDA's handles have 64 bytes.
[[gnu::always_inline]] inline bool same_bytes(const void* one, const void* other, std::size_t bytes) noexcept {
  if (bytes == 64) [[likely]]
    return std::memcmp(one, other, 64) == 0;
  return std::memcmp(one, other, bytes) == 0;
}

}  // namespace

const record* unpin_slowly(pin held) noexcept {
  const record* one = record_of(held);
  ledger* mine = ledger::of_this_thread();
  if ((held & in_entry) != 0 || mine == nullptr || !mine->subtract(one))
    index::record_page::entry_of(one).own_pins().fetch_sub(1, std::memory_order_seq_cst);
  order_on_hit();
  return one->is(record::plain_release) && releases_awaited.load(std::memory_order_relaxed) == 0 ? nullptr : one;
}

// Gives back a pin that is not handed out. That is a release like any other: a closing thread may have seen the pin.
void give_up(pin held, asked_by caller, std::uint32_t cache) noexcept {
  const record* unpinned = unpin(held);
  if (unpinned == nullptr) return;
  const no_cancellation guard;
  static_cast<void>(engine::finish_release(unpinned, caller, cache));  // if a close fails, the entry is quarantined
}

void sample_hits(const record* found) noexcept { index::record_page::entry_of(found).count_hits(ledger::sampling); }

[[gnu::always_inline]] inline record* engine_lookup::first_that_covers(const shard& in, peer_id peer,
                                                                       const range& wanted) noexcept {
  return in.hits.find_by_granules(peer, wanted, [&](const record* candidate) __attribute__((always_inline)) {
    return candidate->covers(wanted.begin, wanted.end);
  });
}

// Returns a view that is never current.
const hit_view& engine_lookup::no_hits() noexcept {
  static const std::atomic<std::uint64_t> never{1};
  static const hit_view none{&never, &never, 0, 0, 0, 12, 0};
  return none;
}

// Finishes a hit of `acquire` that came from a look-up.
[[gnu::always_inline]] inline grant engine_lookup::finish_hit(ledger& mine, record* found, std::uintptr_t key,
                                                              grant got) const noexcept {
  if (found->visited.load(std::memory_order_relaxed) == 0) found->visited.store(1, std::memory_order_relaxed);
  mine.set_hint(key, found);
  if (mine.count_hit(number_)) [[unlikely]]
    return sampled(got);
  return got;
}

void engine_lookup::count_hit(ledger* mine, record* found, std::uintptr_t key, asked_by caller) noexcept {
  if (mine != nullptr) mine->set_hint(key, found);
  if (found->visited.load(std::memory_order_relaxed) == 0) found->visited.store(1, std::memory_order_relaxed);
  if (caller == asked_by::find)
    return mine != nullptr ? mine->count_find(number_) : counters_.add(core::shared_counter::finds_elsewhere);
  if (mine == nullptr) return counters_.add(core::shared_counter::hits_elsewhere);
  if (mine->count_hit(number_)) sample_hits(found);
}

// Mostly the first record that covers the range serves the request, and the thread's cell for it is free. Tail calls to
// other functions handle all else, so that this function need not save registers, which would cost as much as a probe.
// `hit_first` is separate for the same reason: every miss begins with a look-up that finds nothing. If the hint serves
// the request, its cell is taken.
grant engine_lookup::look_up(std::uintptr_t begin, std::uintptr_t end, access_flags need) noexcept {
  ledger* const mine = ledger::if_there();
  if (mine == nullptr || options_.strict || !shards_.map().smallest_only()) [[unlikely]]
    return look_up_any(begin, end, need, asked_by::acquire, 0);
  record* const hint = mine->hint(view_.key(begin));
  if (hint != nullptr && view_.serves(*hint, begin, end, need)) [[unlikely]]
    return hit_again(hint, begin, end, need);
  const shard& in = shards_[shards_.map().shard_at_smallest(begin)];
  if (in.hits.uses_other_keys()) [[unlikely]]
    return look_up_any(begin, end, need, asked_by::acquire, 0);
  record* const first = first_that_covers(in, {}, {begin, end});
  if (first == nullptr) return {};
  return hit_first(first, begin, end, need);
}

[[gnu::noinline]] grant engine_lookup::hit_first(record* one, std::uintptr_t begin, std::uintptr_t end,
                                                 access_flags need) noexcept {
  ledger& mine = *ledger::if_there();
  const pin held = pin_in_cell(mine, one);
  if (held == 0) [[unlikely]]
    return hit_again(one, begin, end, need);
  order_on_hit();
  if (!view_.current() || !view_.serves(*one, begin, end, need)) [[unlikely]]
    return look_up_any(begin, end, need, asked_by::acquire, held);
  return finish_hit(mine, one, view_.key(begin), {held, reinterpret_cast<void*>(begin)});
}

grant engine_lookup::look_up(peer_id peer, range wanted, const void* token) noexcept {
  ledger* const mine = ledger::if_there();
  if (mine == nullptr) [[unlikely]]
    return look_up_any(peer, wanted, token, asked_by::acquire, 0);
  const auto key = view_.key(peer, wanted.begin);
  record* const hint = mine->hint(key);
  if (hint != nullptr && view_.serves(*hint, wanted.begin, wanted.end, access_flags::none)) [[unlikely]]
    return hit_again(hint, peer, wanted, token);
  const shard& in = shards_[0];  // imports have one shard
  if (in.hits.uses_other_keys()) [[unlikely]]
    return look_up_any(peer, wanted, token, asked_by::acquire, 0);
  record* const first = first_that_covers(in, peer, wanted);
  if (first == nullptr) return {};
  const pin held = pin_in_cell(*mine, first);
  if (held == 0) [[unlikely]]
    return hit_again(first, peer, wanted, token);
  order_on_hit();
  if (!serves(*first, peer, wanted, token)) [[unlikely]]
    return look_up_any(peer, wanted, token, asked_by::acquire, held);
  return finish_hit(*mine, first, key, {held, local_address(*first, wanted.begin)});
}

// A hit of a record whose cell is taken: the thread has a lease on it, or on another record with the same cell.
grant engine_lookup::hit_again(record* one, std::uintptr_t begin, std::uintptr_t end, access_flags need) noexcept {
  ledger* const mine = ledger::if_there();
  const pin held = pin_now(mine, one);
  order_on_hit();
  if (!view_.current() || !view_.serves(*one, begin, end, need)) [[unlikely]]
    return look_up_any(begin, end, need, asked_by::acquire, held);
  return finish_hit(*mine, one, view_.key(begin), {held, reinterpret_cast<void*>(begin)});
}

grant engine_lookup::hit_again(record* one, peer_id peer, range wanted, const void* token) noexcept {
  ledger* const mine = ledger::if_there();
  const pin held = pin_now(mine, one);
  order_on_hit();
  if (!serves(*one, peer, wanted, token)) [[unlikely]]
    return look_up_any(peer, wanted, token, asked_by::acquire, held);
  return finish_hit(*mine, one, view_.key(peer, wanted.begin), {held, local_address(*one, wanted.begin)});
}

// Tries all records that cover the range. First gives back `failed`, the pin of a failed hit, unless it is 0.
grant engine_lookup::look_up_any(std::uintptr_t begin, std::uintptr_t end, access_flags need, asked_by caller,
                                 pin failed) noexcept {
  if (failed != 0) give_up(failed, caller, number_);
  if (monitors_.strict()) monitors_.wait_for_events();
  ledger* const mine = ledger::of_this_thread();
  const auto serves = [&](const record& one) { return view_.current() && view_.serves(one, begin, end, need); };
  pinned_record got;
  got.found = find_record({}, {begin, end}, pins_if(got, {begin, end}, {mine, caller, number_}, serves));
  if (got.held == 0) return {};
  count_hit(mine, got.found, view_.key(begin), caller);
  return {got.held, reinterpret_cast<void*>(begin)};
}

grant engine_lookup::look_up_any(peer_id peer, range wanted, const void* token, asked_by caller, pin failed) noexcept {
  if (failed != 0) give_up(failed, caller, number_);
  ledger* const mine = ledger::of_this_thread();
  const auto serves_it = [&](const record& one) { return serves(one, peer, wanted, token); };
  pinned_record got;
  got.found = find_record(peer, wanted, pins_if(got, wanted, {mine, caller, number_}, serves_it));
  if (got.held == 0) return {};
  count_hit(mine, got.found, view_.key(peer, wanted.begin), caller);
  return {got.held, local_address(*got.found, wanted.begin)};
}

bool engine_lookup::serves(const record& one, peer_id peer, const range& wanted, const void* token) const noexcept {
  if (!view_.current() || !view_.serves(one, wanted.begin, wanted.end, access_flags::none)) return false;
  const auto* own = driver_.token_of(one);
  return imported_part_of(one).peer == peer && same_bytes(own, token, driver_.token_bytes());
}

grant engine_lookup::look_up(const request& what) noexcept {
  if (hits_need_the_mutex() || what.persistent || what.unshared || what.unbudgeted) return {};
  const auto [begin, end] = what.wanted;
  if (driver_.imports()) return look_up(what.peer, what.wanted, what.token);
  if (const auto held = hinted_hit(inline_view(), begin, end, what.need); held != 0)
    return {held, reinterpret_cast<void*>(begin)};
  return look_up(begin, end, what.need);
}

}  // namespace pinfold::detail
