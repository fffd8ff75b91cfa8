// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What the sink is to be told once the mutex is free: memory went away under leases.
#pragma once

#include "core/entry.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace pinfold::core {

/// How many entries are marked stale in one go, while others wait for the mutex.
inline constexpr std::size_t most_marked = 64;

/// What was marked, and is looked at once more when every thread knows.
class marked_entries {
 public:
  [[nodiscard]] bool full() const noexcept { return count_ == all_.size(); }
  void add(entry* one) noexcept { all_[count_++] = one; }
  /// Where more may be written, before `grow` says how many were.
  [[nodiscard]] std::span<entry*> rest() noexcept { return std::span(all_).subspan(count_); }
  void grow(std::size_t more) noexcept { count_ += more; }
  [[nodiscard]] std::span<entry* const> all() const noexcept { return std::span(all_).first(count_); }

 private:
  std::size_t count_ = 0;
  std::array<entry*, most_marked> all_;
};

/// Copies, as the entries may be used again by then.
class leased_notices {
 public:
  struct notice {
    peer_id peer;
    range where;
    std::uint64_t leases;
    std::int32_t owner;
  };

  leased_notices() noexcept {}  // most of the room is never used, so nothing is written there

  /// Notes those that drain and are still pinned. Under the engine's mutex, after everybody knows that they drain.
  void note(std::span<entry* const> marked) noexcept {
    for (const entry* one : marked) {
      if (one->now() != entry_state::draining || one->pins() <= 0) continue;
      all_[count_++] = {one->peer(), one->covered(), static_cast<std::uint64_t>(one->pins()), one->owner()};
    }
  }

  [[nodiscard]] std::span<const notice> all() const noexcept { return std::span(all_).first(count_); }

 private:
  std::size_t count_ = 0;
  std::array<notice, most_marked> all_;
};

}  // namespace pinfold::core
