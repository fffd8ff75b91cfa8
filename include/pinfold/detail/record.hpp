// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What a hit and a lease look at. Not for users; it may change in any release.
#pragma once

#include <pinfold/peer.hpp>
#include <pinfold/range.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pinfold::detail {

/// What a hit and a lease look at: the hot part of an entry, kept small and apart from the rest. Its memory is
/// type-stable: a racing reader may look at a record that means something else by now, never at freed memory. Behind it
/// follow, for imported memory, an `imported_part`; then the registrar's object; then the token.
struct record {
  // Bits of the word. Above them stand the rights that a hit may ask for, and the number of the cache.
  static constexpr std::uint32_t hittable = 1;  ///< live, and found without the engine's mutex
  static constexpr std::uint32_t stale = 2;     ///< the memory was replaced or invalidated since
  static constexpr std::uint32_t revoked = 4;   ///< the cache was destroyed under the lease: the registration is closed
  static constexpr std::uint32_t listed = 8;    ///< in the table that hits look at
  static constexpr unsigned rights_shift = 8;
  static constexpr unsigned cache_shift = 16;

  std::atomic<std::uint32_t> word{0};    ///< changed under the engine's mutex only
  std::atomic<std::uint8_t> visited{0};  ///< hit since the eviction's hand passed
  std::array<std::uint8_t, 3> era{};     ///< when it was claimed, see `engine_news.cpp`; under the engine's mutex
  // Like all that follows: constant while hittable or pinned. Before a pin, anybody may read them as a hint.
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};

  [[nodiscard]] bool is(std::uint32_t bit) const noexcept { return (word.load(std::memory_order_acquire) & bit) != 0; }

  [[nodiscard]] bool covers(std::uintptr_t first, std::uintptr_t last) const noexcept {
    return begin.load(std::memory_order_relaxed) <= first && last <= end.load(std::memory_order_relaxed);
  }
  [[nodiscard]] range covered() const noexcept {
    return {begin.load(std::memory_order_relaxed), end.load(std::memory_order_relaxed)};
  }

  // Under the engine's mutex: nobody else writes the word.
  void set(std::uint32_t bits) noexcept {
    word.store(word.load(std::memory_order_relaxed) | bits, std::memory_order_release);
  }
  void clear(std::uint32_t bits) noexcept {
    word.store(word.load(std::memory_order_relaxed) & ~bits, std::memory_order_release);
  }
};

/// What imported memory has besides: no peer sees another's, and its addresses here are not those of the key.
struct imported_part {
  void* data = nullptr;  ///< where `covered.begin` is in this process
  peer_id peer{};
};

/// Records lie in pages of that size and alignment, of which they know nothing more.
inline constexpr std::size_t record_page_bytes = 16384;

inline constexpr std::size_t local_object_offset = sizeof(record);
inline constexpr std::size_t imported_object_offset = sizeof(record) + sizeof(imported_part);

/// Where the token lies, behind an object of that size.
[[nodiscard]] constexpr std::size_t token_offset(std::size_t object_offset, std::size_t object_bytes) noexcept {
  return (object_offset + object_bytes + 7) / 8 * 8;
}

/// What an imported record has besides. It means something only while the record is known to be an imported one.
[[nodiscard]] inline const imported_part& imported_part_of(const record& one) noexcept {
  return *reinterpret_cast<const imported_part*>(&one + 1);
}

/// Where an address that the imported record covers is in this process.
[[nodiscard]] inline void* local_address(const record& one, std::uintptr_t address) noexcept {
  const auto base = reinterpret_cast<std::uintptr_t>(imported_part_of(one).data);
  return reinterpret_cast<void*>(base + (address - one.begin.load(std::memory_order_relaxed)));
}

/// Who wants a hit. `find` is counted apart, and it calls no driver: where its pin turns out to be the last on
/// something that is to be closed, it leaves the close to others (R48).
enum class asked_by : std::uint8_t { acquire, find };

/// One pin on a record. Where it is written down is in the lowest bits: in a cell of a ledger, whose address it then
/// is; else it is the record's address, and the pin is counted in ledgers or, with `in_entry`, in the entry. 0 is none.
using pin = std::uintptr_t;
inline constexpr pin in_entry = 1;
inline constexpr pin in_cell = 2;
using pin_cell = std::atomic<std::uintptr_t>;  ///< the address of the record that it pins, or 0

[[nodiscard]] inline record* record_of(pin held) noexcept {
  if ((held & in_cell) == 0) return reinterpret_cast<record*>(held & ~in_entry);
  return reinterpret_cast<record*>(reinterpret_cast<const pin_cell*>(held - in_cell)->load(std::memory_order_relaxed));
}

}  // namespace pinfold::detail
