// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The sizes of the System V segments that this process has attached: shmdt(2) does not take a size.
#pragma once

#include <pinfold/range.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pinfold::monitors {

/// A table of a few segments. A caller that finds no entry must assume that all memory behind the address goes away.
/// For any thread and any signal handler: takes no lock and allocates nothing.
class segments {
 public:
  /// Records the size of the segment attached there.
  void attached(std::uintptr_t at, std::size_t bytes) noexcept;
  /// Returns at least the memory that shmdt takes away.
  [[nodiscard]] range detached(std::uintptr_t at) noexcept;
  /// Forgets all sizes. Called before attached memory may move to another place, which makes the records wrong.
  void forget() noexcept {
    if (any_.load(std::memory_order_relaxed)) forget_all();
  }

 private:
  void forget_all() noexcept;
  std::uint64_t take(std::uintptr_t at) noexcept;

  // Page number and number of pages in one word, so that no thread can read a mixture of two entries. 0: free.
  static constexpr unsigned size_bits = 28;
  std::array<std::atomic<std::uint64_t>, 32> known_{};
  std::atomic<bool> any_{false};
};

}  // namespace pinfold::monitors
