// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// How large the System V segments are that this process has attached: shmdt(2) does not say.
#pragma once

#include <pinfold/range.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pinfold::monitors {

/// A few of them; who finds nothing has to think that all memory behind the address goes. For any thread and any signal
/// handler: no lock, no memory.
class segments {
 public:
  /// Says how large the segment is that has been attached there.
  void attached(std::uintptr_t at, std::size_t bytes) noexcept;
  /// What shmdt takes away, at most.
  [[nodiscard]] range detached(std::uintptr_t at) noexcept;
  /// To be called before attached memory may move to another place: what is known may then be wrong.
  void forget() noexcept {
    if (any_.load(std::memory_order_relaxed)) forget_all();
  }

 private:
  void forget_all() noexcept;
  std::uint64_t take(std::uintptr_t at) noexcept;

  // Page number and number of pages in one word, so that no two threads can make a mixture. 0: free.
  static constexpr unsigned size_bits = 28;
  std::array<std::atomic<std::uint64_t>, 32> known_{};
  std::atomic<bool> any_{false};
};

}  // namespace pinfold::monitors
