// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The path that callers take most of the time, inline: two calls into a shared library cost as much as all the rest of
/// it. `docs/protocol.md` has the argument why it is right. Not for users; it may change in any release.
#pragma once

#include <pinfold/detail/ledger.hpp>
#include <pinfold/detail/record.hpp>
#include <pinfold/export.hpp>
#include <pinfold/rights.hpp>

#include <atomic>
#include <cstdint>

// A place where a test may make a thread wait, to have the others do what should not matter.
#ifndef PINFOLD_POINT
#define PINFOLD_POINT(name)
#endif

namespace pinfold::detail {

/// What a hit compares with: of one engine, and hardly ever written.
struct hit_view {
  static constexpr std::uint32_t cache_mask = 0xffU << record::cache_shift;

  const std::atomic<std::uint64_t>* generation;  ///< counts what happened to memory; another's in a child of fork(2)
  const std::atomic<std::uint64_t>* kernels;     ///< what the kernel counts besides; neither of them ever falls
  std::atomic<std::uint64_t> seen;               ///< the sum of both that this cache has dealt with
  std::uint32_t number_in_word;                  ///< the cache's number, where records have it
  std::uint32_t number;                          ///< the same, 0 for a cache that is one too many
  std::atomic<std::uint32_t> shift{12};          ///< addresses that differ only below are guessed to be one region's
  std::uintptr_t salt;                           ///< keeps the guesses of caches apart

  /// Where a thread keeps its guess for an address, of this process or of a peer.
  [[nodiscard]] std::uintptr_t key(std::uintptr_t address) const noexcept {
    return (address >> shift.load(std::memory_order_relaxed)) + salt;
  }
  [[nodiscard]] std::uintptr_t key(peer_id peer, std::uintptr_t address) const noexcept {
    return key(address) + peer.value;
  }
  [[nodiscard, gnu::always_inline]] bool current() const noexcept {
    const auto known = seen.load(std::memory_order_acquire);  // first: then both can only be later than it
    return generation->load(std::memory_order_acquire) + kernels->load(std::memory_order_acquire) == known;
  }

  /// Whether the record, which must be pinned, is live, of this cache, and gives the rights on all of the range. Its
  /// word says whether the rest of it means anything, so it is read first.
  [[nodiscard, gnu::always_inline]] bool serves(const record& one, std::uintptr_t begin, std::uintptr_t end,
                                                rights need) const noexcept {
    const auto asked = static_cast<std::uint32_t>(need) << record::rights_shift | record::hittable;
    const auto word = one.word.load(std::memory_order_acquire) ^ number_in_word;
    return (word & (asked | cache_mask)) == asked && one.covers(begin, end);
  }
};

/// While not 0, every release in the process has to be settled: somebody waits for one.
extern PINFOLD_EXPORT std::atomic<std::uint32_t> releases_awaited;

[[nodiscard]] PINFOLD_EXPORT const record* unpin_slowly(pin held) noexcept;
/// Unpins and settles a hit that was none, in the cache with that number.
PINFOLD_EXPORT void give_up(pin held, asked_by who, std::uint32_t cache) noexcept;
PINFOLD_EXPORT void sample_hits(const record* found) noexcept;

/// A hit on what this thread keeps as its guess under `key`: 0 when that is none. `matches(const record&)` compares
/// what neither range nor rights tell; when it is called the record is pinned, and known to be live and of this cache.
template <asked_by Who, class Matches>
[[nodiscard, gnu::always_inline]] inline pin guess_hit(const hit_view& in, std::uintptr_t key, std::uintptr_t begin,
                                                       std::uintptr_t end, rights need, Matches&& matches) noexcept {
  ledger* mine = ledger::if_there();
  if (mine == nullptr) [[unlikely]]
    return 0;
  record* guess = mine->guess(key);
  if (!guess->covers(begin, end)) [[unlikely]]
    return 0;  // nobody's pin should be seen on what he does not want
  pin_cell& cell = mine->cell_of(guess);
  if (cell.load(std::memory_order_acquire) != 0) [[unlikely]]
    return 0;
  const auto held = reinterpret_cast<pin>(&cell) | in_cell;
  PINFOLD_POINT(before_pin);
  store_before_barrier(cell, reinterpret_cast<std::uintptr_t>(guess));
  order_on_hit();
  PINFOLD_POINT(after_pin);
  if (!in.current() || !in.serves(*guess, begin, end, need) || !matches(*guess)) [[unlikely]] {
    give_up(held, Who, in.number);
    return 0;
  }
  if (guess->visited.load(std::memory_order_relaxed) == 0) [[unlikely]]
    guess->visited.store(1, std::memory_order_relaxed);
  if constexpr (Who == asked_by::find) {
    mine->count_find(in.number);
  } else if (mine->count_hit(in.number)) [[unlikely]] {
    sample_hits(guess);
  }
  return held;
}

/// A hit on memory of this process among those that this thread had lately: 0 when there is none.
template <asked_by Who = asked_by::acquire>
[[nodiscard, gnu::always_inline]] inline pin guess_hit(const hit_view& in, std::uintptr_t begin, std::uintptr_t end,
                                                       rights need) noexcept {
  return guess_hit<Who>(in, in.key(begin), begin, end, need, [](const record&) { return true; });
}

/// Gives a pin back. The record that was pinned, when somebody may wait for that or the registration may have to be
/// closed: then `settle` it. Else null.
[[nodiscard, gnu::always_inline]] inline const record* unpin(pin held) noexcept {
  if ((held & in_cell) == 0) [[unlikely]]
    return unpin_slowly(held);
  auto& cell = *reinterpret_cast<pin_cell*>(held - in_cell);
  const auto* one = reinterpret_cast<const record*>(cell.load(std::memory_order_relaxed));
  PINFOLD_POINT(before_unpin);
  store_before_barrier(cell, 0);
  order_on_hit();
  PINFOLD_POINT(after_unpin);
  if (one->is(record::hittable) && releases_awaited.load(std::memory_order_relaxed) == 0) [[likely]]
    return nullptr;
  return one;
}

}  // namespace pinfold::detail
