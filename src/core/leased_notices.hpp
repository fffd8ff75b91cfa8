// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Notices for the sink of memory that went away under leases, told once the mutex is free.
#pragma once

#include "index/entry.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace pinfold::core {

/// The largest number of entries that one call marks stale, as other threads wait for the mutex.
inline constexpr std::size_t most_invalidated = 64;

/// The entries that were marked, to be checked again after the barrier.
class invalidated_entries {
 public:
  explicit invalidated_entries(std::size_t most = most_invalidated) noexcept : most_(most) {}
  [[nodiscard]] bool full() const noexcept { return count_ == most_; }
  void add(index::entry* one) noexcept { all_[count_++] = one; }
  /// Returns the free part, to be written to before `grow`.
  [[nodiscard]] std::span<index::entry*> rest() noexcept { return std::span(all_).subspan(count_, most_ - count_); }
  void grow(std::size_t more) noexcept { count_ += more; }
  [[nodiscard]] std::span<index::entry* const> all() const noexcept { return std::span(all_).first(count_); }

 private:
  const std::size_t most_;
  std::size_t count_ = 0;
  std::array<index::entry*, most_invalidated> all_;
};

/// Notices, with copies of the entries' data, as the entries may be reused before the sink is told.
class leased_notices {
 public:
  struct notice {
    peer_id peer;
    range where;
    std::uint64_t leases;
    std::int32_t owner;
  };

  leased_notices() noexcept {}  // most of the room is never used, so nothing is written there

  /// Notes the entries that drain and are still pinned. Requires the shard's mutex, and that a barrier came after they
  /// became `draining`.
  void note(std::span<index::entry* const> invalidated) noexcept {
    for (const index::entry* one : invalidated) {
      if (one->now() != entry_state::draining || one->pins() <= 0) continue;
      all_[count_++] = {one->peer(), one->covered(), static_cast<std::uint64_t>(one->pins()), one->owner()};
    }
  }

  [[nodiscard]] std::span<const notice> all() const noexcept { return std::span(all_).first(count_); }

 private:
  std::size_t count_ = 0;
  std::array<notice, most_invalidated> all_;
};

}  // namespace pinfold::core
