// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The hit path, inline: two calls into a shared library would cost as much as the rest of a hit.
/// `docs/understand/protocol.md` explains why it is correct. Not for users; it may change in any release.
#pragma once

#include <pinfold/access.hpp>
#include <pinfold/detail/ledger.hpp>
#include <pinfold/detail/record.hpp>
#include <pinfold/export.hpp>

#include <atomic>
#include <cstdint>

// A point where a test can stop a thread while other threads go on.
#ifndef PINFOLD_SYNC_POINT
#define PINFOLD_SYNC_POINT(name)
#endif

namespace pinfold::detail {

/// The values of one engine that a hit compares with. Hardly ever written.
struct hit_view {
  static constexpr std::uint32_t cache_mask = 0xffU << record::cache_shift;

  const std::atomic<std::uint64_t>* generation;  ///< counts events on memory; a child of fork(2) sees its own count
  const std::atomic<std::uint64_t>* kernels;     ///< counts the kernel's events (`bpf`); neither count ever falls
  std::atomic<std::uint64_t> seen;               ///< the sum of both counts up to which this cache has processed events
  std::uint32_t number_in_word;                  ///< the cache's number, shifted to its place in a record's word
  std::uint32_t number;                          ///< the cache's number; 0 if there are more caches than numbers
  std::atomic<std::uint32_t> shift{12};          ///< addresses that differ only in the bits below share a hint
  std::uintptr_t salt;                           ///< keeps the hints of different caches apart

  /// Returns the key of a thread's hint for an address, of this process or of a peer.
  [[nodiscard]] std::uintptr_t key(std::uintptr_t address) const noexcept {
    return (address >> shift.load(std::memory_order_relaxed)) + salt;
  }
  [[nodiscard]] std::uintptr_t key(peer_id peer, std::uintptr_t address) const noexcept {
    return key(address) + peer.value * 30941;  // far apart: the regions of a peer lie side by side
  }
  [[nodiscard, gnu::always_inline]] bool current() const noexcept {
    const auto known = seen.load(std::memory_order_acquire);  // first, so that both counts are loaded later
    return generation->load(std::memory_order_acquire) + kernels->load(std::memory_order_acquire) == known;
  }

  /// Returns whether the record, which must be pinned, is live, belongs to this cache, and grants the access to the
  /// whole range. Reads the word first: it says whether the other fields are valid.
  [[nodiscard, gnu::always_inline]] bool serves(const record& one, std::uintptr_t begin, std::uintptr_t end,
                                                access_flags need) const noexcept {
    const auto asked = static_cast<std::uint32_t>(need) << record::rights_shift | record::hittable;
    const auto word = one.word.load(std::memory_order_acquire) ^ number_in_word;
    return (word & (asked | cache_mask)) == asked && one.covers(begin, end);
  }
};

/// While not 0, threads wait for a release, and every release in the process must call `finish_release`.
extern PINFOLD_EXPORT std::atomic<std::uint32_t> releases_awaited;

/// Gives a pin back that is not in a cell. Returns the record if the release must be finished, else null.
[[nodiscard]] PINFOLD_EXPORT const record* unpin_slowly(pin held) noexcept;
/// Takes back the pin of a failed hit, as a release in the cache with number `cache`.
PINFOLD_EXPORT void give_up(pin held, asked_by caller, std::uint32_t cache) noexcept;
/// Counts `ledger::sampling` hits of the record's entry.
PINFOLD_EXPORT void sample_hits(const record* found) noexcept;

/// Tries to hit the record that is this thread's hint for `key`; returns 0 if it does not match. `matches(const
/// record&)` compares the rest, such as peer and token. During that call the record is pinned, live, and of this cache.
template <asked_by Who, class Matches>
[[nodiscard, gnu::always_inline]] inline pin hinted_hit(const hit_view& in, std::uintptr_t key, std::uintptr_t begin,
                                                        std::uintptr_t end, access_flags need,
                                                        Matches&& matches) noexcept {
  ledger& mine = ledger::for_hints();
  record* hint = mine.hint(key);
  if (hint == nullptr || !hint->covers(begin, end)) [[unlikely]]
    return 0;  // do not pin a record that cannot match: the pin would delay its close
  pin_cell& cell = mine.cell_of(hint);
  if (cell.load(std::memory_order_acquire) != 0) [[unlikely]]
    return 0;
  const auto held = reinterpret_cast<pin>(&cell) | in_cell;
  PINFOLD_SYNC_POINT(before_pin);
  store_before_barrier(cell, reinterpret_cast<std::uintptr_t>(hint));
  order_on_hit();
  PINFOLD_SYNC_POINT(after_pin);
  if (!in.current() || !in.serves(*hint, begin, end, need) || !matches(*hint)) [[unlikely]] {
    give_up(held, Who, in.number);
    return 0;
  }
  if (hint->visited.load(std::memory_order_relaxed) == 0) [[unlikely]]
    hint->visited.store(1, std::memory_order_relaxed);
  if constexpr (Who == asked_by::find) {
    mine.count_find(in.number);
  } else if (mine.count_hit(in.number)) [[unlikely]] {
    sample_hits(hint);
  }
  return held;
}

/// Tries to hit a record of local memory that this thread hit recently; returns 0 if none matches.
template <asked_by Who = asked_by::acquire>
[[nodiscard, gnu::always_inline]] inline pin hinted_hit(const hit_view& in, std::uintptr_t begin, std::uintptr_t end,
                                                        access_flags need) noexcept {
  return hinted_hit<Who>(in, in.key(begin), begin, end, need, [](const record&) { return true; });
}

/// Gives a pin back. Returns the record if a thread may wait for the release, if eviction passes over the entry until a
/// release, or if the registration may have to be closed: the caller must then call `finish_release`. Otherwise returns
/// null.
[[nodiscard, gnu::always_inline]] inline const record* unpin(pin held) noexcept {
  if ((held & in_cell) == 0) [[unlikely]]
    return unpin_slowly(held);
  auto& cell = *reinterpret_cast<pin_cell*>(held - in_cell);
  const auto* one = reinterpret_cast<const record*>(cell.load(std::memory_order_relaxed));
  PINFOLD_SYNC_POINT(before_unpin);
  store_before_barrier(cell, 0);
  order_on_hit();
  PINFOLD_SYNC_POINT(after_unpin);
  if (one->is(record::plain_release) && releases_awaited.load(std::memory_order_relaxed) == 0) [[likely]]
    return nullptr;
  return one;
}

}  // namespace pinfold::detail
