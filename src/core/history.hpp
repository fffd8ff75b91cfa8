// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Remembers for a while which memory was closed and why, so that a miss is counted by its reason (R43).
#pragma once

#include "index/entry.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace pinfold::core {

/// The reason of a miss: why the next request for the same memory has to open it again.
enum class miss_reason : std::uint8_t { cold, invalidated, access, extent, evicted };

/// A table of fixed size, indexed by a hash: later entries overwrite earlier ones, and forgotten memory counts as cold.
/// Not thread-safe: guarded by the shard's mutex.
class history {
 public:
  void remember(peer_id peer, std::uintptr_t begin, miss_reason reason) noexcept {
    slots_[slot(peer, begin)] = {peer, begin, reason};
    empty_ = false;
  }

  /// Forgets the reason for memory that is open again.
  void forget(peer_id peer, std::uintptr_t begin) noexcept {
    if (empty_) return;
    auto& seen = slots_[slot(peer, begin)];
    if (seen.peer == peer && seen.begin == begin) seen.reason = miss_reason::cold;
  }

  /// Returns why this memory has no entry now.
  [[nodiscard]] miss_reason recall(peer_id peer, std::uintptr_t begin) const noexcept {
    if (empty_) return miss_reason::cold;
    const auto& seen = slots_[slot(peer, begin)];
    return seen.peer == peer && seen.begin == begin ? seen.reason : miss_reason::cold;
  }

 private:
  static constexpr std::size_t slot_count = 512;
  struct remembered {
    peer_id peer{};
    std::uintptr_t begin = 0;
    miss_reason reason = miss_reason::cold;
  };

  // Fibonacci hashing of page numbers: neighbours land in different slots.
  static std::size_t slot(peer_id peer, std::uintptr_t begin) noexcept {
    return (((begin >> 12U) + peer.value * 0x51ed270b9f1U) * 0x9e3779b97f4a7c15U >> 32U) % slot_count;
  }

  bool empty_ = true;
  std::array<remembered, slot_count> slots_{};
};

}  // namespace pinfold::core
