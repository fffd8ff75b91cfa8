// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The part of an entry that hits and leases read. Not for users; it may change in any release.
#pragma once

#include <pinfold/peer.hpp>
#include <pinfold/range.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pinfold::detail {

/// The hot part of an entry, which hits and leases read: small, and apart from the rest. Its memory is type-stable: a
/// racing reader may see a record that was reused for another entry, never freed memory. Behind the record follow, for
/// imported memory, an `imported_part`; then the registrar's object; then the token.
struct record {
  // Bits of the word. The bits above hold the access that a hit may request, and the cache's number.
  static constexpr std::uint32_t hittable = 1;  ///< `live`, and hits may pin it without the shard's mutex
  static constexpr std::uint32_t stale = 2;     ///< the memory was replaced or invalidated after it was registered
  static constexpr std::uint32_t revoked = 4;   ///< the cache was destroyed under the lease: the registration is closed
  static constexpr std::uint32_t listed = 8;    ///< in the table that hits look up
  static constexpr std::uint32_t plain_release = 16;  ///< hittable, and a release need not take the mutex
  static constexpr std::uint32_t listed_as = 96;      ///< its other key in that table, or 0
  static constexpr unsigned listed_shift = 5;
  static constexpr std::uint32_t listed_alone = 128;  ///< only under that key
  static constexpr unsigned rights_shift = 8;
  static constexpr unsigned cache_shift = 16;

  std::atomic<std::uint32_t> word{0};    ///< changed under the shard's mutex only
  std::atomic<std::uint8_t> visited{0};  ///< hit since the hand of the eviction clock or the idle sweep cleared it
  std::array<std::uint8_t, 3> era{};  ///< when the entry was claimed, see `engine_events.cpp`; under the shard's mutex
  // These two, and all that follows the record, are constant while it is hittable or pinned. Without a pin, any thread
  // may read them as a hint.
  std::atomic<std::uintptr_t> begin{0};
  std::atomic<std::uintptr_t> end{0};

  [[nodiscard]] bool is(std::uint32_t bit) const noexcept { return (word.load(std::memory_order_acquire) & bit) != 0; }

  [[nodiscard, gnu::always_inline]] bool covers(std::uintptr_t first, std::uintptr_t last) const noexcept {
    return begin.load(std::memory_order_relaxed) <= first && last <= end.load(std::memory_order_relaxed);
  }
  [[nodiscard]] range covered() const noexcept {
    return {begin.load(std::memory_order_relaxed), end.load(std::memory_order_relaxed)};
  }

  // Under the shard's mutex, so that no other thread writes the word meanwhile.
  void set(std::uint32_t bits) noexcept {
    word.store(word.load(std::memory_order_relaxed) | bits, std::memory_order_release);
  }
  void clear(std::uint32_t bits) noexcept {
    word.store(word.load(std::memory_order_relaxed) & ~bits, std::memory_order_release);
  }
};

/// The additional fields of imported memory: its peer, because peers do not share entries, and its local address.
struct imported_part {
  void* data = nullptr;  ///< where `covered.begin` is in this process
  peer_id peer{};
};

/// Size and alignment of the pages that records lie in.
inline constexpr std::size_t record_page_bytes = 16384;

inline constexpr std::size_t local_object_offset = sizeof(record);
inline constexpr std::size_t imported_object_offset = sizeof(record) + sizeof(imported_part);

/// Returns the offset of the token, behind an object of `object_bytes` bytes.
[[nodiscard]] constexpr std::size_t token_offset(std::size_t object_offset, std::size_t object_bytes) noexcept {
  return (object_offset + object_bytes + 7) / 8 * 8;
}

/// Returns the additional fields of an imported record. Valid only if the record is known to be of imported memory.
[[nodiscard]] inline const imported_part& imported_part_of(const record& one) noexcept {
  return *reinterpret_cast<const imported_part*>(&one + 1);
}

/// Returns the local address of a remote address that the imported record covers.
[[nodiscard]] inline void* local_address(const record& one, std::uintptr_t address) noexcept {
  const auto base = reinterpret_cast<std::uintptr_t>(imported_part_of(one).data);
  return reinterpret_cast<void*>(base + (address - one.begin.load(std::memory_order_relaxed)));
}

/// The call that a hit serves. `find` has a counter of its own and never calls the driver: if it gives back the last
/// pin on an entry that is to be closed, it queues the close (R48).
enum class asked_by : std::uint8_t { acquire, find };

/// One pin on a record. The lowest bits say where it is counted. With `in_cell`, the rest is the address of a ledger's
/// cell. Otherwise the rest is the record's address, and the pin is counted in the ledgers' slots or, with `in_entry`,
/// in the entry. 0: no pin.
using pin = std::uintptr_t;
inline constexpr pin in_entry = 1;
inline constexpr pin in_cell = 2;
using pin_cell = std::atomic<std::uintptr_t>;  ///< the address of the pinned record, or 0

[[nodiscard]] inline record* record_of(pin held) noexcept {
  if ((held & in_cell) == 0) return reinterpret_cast<record*>(held & ~in_entry);
  return reinterpret_cast<record*>(reinterpret_cast<const pin_cell*>(held - in_cell)->load(std::memory_order_relaxed));
}

}  // namespace pinfold::detail
