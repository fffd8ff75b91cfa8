// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Remembers for a while which memory was closed and why, so that a miss is counted by its reason (R43).
#pragma once

#include "index/entry.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace pinfold::core {

/// The reason of a miss: why the next request for the same memory has to open it again.
enum class miss_reason : std::uint8_t { cold, invalidated, access, extent, evicted };

/// A table of fixed size, indexed by a hash: later entries overwrite earlier ones, and forgotten memory counts as cold.
/// Memory is known by its hash of 61 bits. Not thread-safe: guarded by the shard's mutex.
class history {
 public:
  void remember(peer_id peer, std::uintptr_t begin, miss_reason reason) noexcept {
    const auto hash = hash_of(peer, begin);
    slots_[slot(hash)] = (hash & ~reason_mask) | static_cast<std::uint64_t>(reason);
    empty_ = false;
  }

  /// Forgets the reason for memory that is open again.
  void forget(peer_id peer, std::uintptr_t begin) noexcept {
    if (empty_) return;
    const auto hash = hash_of(peer, begin);
    if (is_of(slots_[slot(hash)], hash)) slots_[slot(hash)] = 0;
  }

  /// Returns why this memory has no entry now.
  [[nodiscard]] miss_reason recall(peer_id peer, std::uintptr_t begin) const noexcept {
    if (empty_) return miss_reason::cold;
    const auto hash = hash_of(peer, begin);
    const auto seen = slots_[slot(hash)];
    return is_of(seen, hash) ? static_cast<miss_reason>(seen & reason_mask) : miss_reason::cold;
  }

  static constexpr std::size_t slot_count = 512;
  /// Returns the first slot, for readers of the process's memory.
  [[nodiscard]] const std::uint64_t* slots() const noexcept { return slots_.data(); }

 private:
  static constexpr std::uint64_t reason_mask = 7;

  // Fibonacci hashing of page numbers: neighbours land in different slots.
  static std::uint64_t hash_of(peer_id peer, std::uintptr_t begin) noexcept {
    return (std::rotr(begin, 12) + peer.value * 0x51ed270b9f1U) * 0x9e3779b97f4a7c15U;
  }
  static std::size_t slot(std::uint64_t hash) noexcept { return (hash >> 32U) % slot_count; }
  static bool is_of(std::uint64_t seen, std::uint64_t hash) noexcept { return ((seen ^ hash) & ~reason_mask) == 0; }

  bool empty_ = true;
  std::array<std::uint64_t, slot_count> slots_{};  // hash, and in the low bits the reason
};

}  // namespace pinfold::core
