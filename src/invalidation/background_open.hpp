// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Registrations that threads of the library make while the application does what it likes with the memory.
#pragma once

#include "os/check.hpp"

#include <atomic>
#include <cstdint>

namespace pinfold::invalidation {

/// Exists from before a thread of the library claims an entry until after the driver has answered.
///
/// The hooks post an event before a call takes memory away. A thread of the application does not use memory that
/// another is taking away, but a thread of the library may register it after the event and before it goes: from then on
/// an entry would have the old pages, with no event to come. So the hooks post again after the call if such a
/// registration was in progress at any time since they looked whether the memory is registered.
class background_open {
 public:
  background_open() noexcept : process_(forks.load(std::memory_order_relaxed)) {
    all.fetch_add(begun + 1, std::memory_order_seq_cst);
  }
  background_open(const background_open&) = delete;
  background_open& operator=(const background_open&) = delete;
  ~background_open() {
    if (process_ != forks.load(std::memory_order_relaxed)) return;
    PINFOLD_ASSERT((all.load(std::memory_order_relaxed) & (begun - 1)) != 0, "what is in progress is counted");
    all.fetch_sub(1, std::memory_order_seq_cst);
  }

  /// For the child of a fork(2): what was in progress in the parent is not there.
  static void forget_in_child() noexcept {
    forks.fetch_add(1, std::memory_order_relaxed);
    all.fetch_and(~(begun - 1), std::memory_order_relaxed);
  }

  /// A look at the beginning of a call.
  class look {
   public:
    look() noexcept : then_(all.load(std::memory_order_acquire)) {}
    /// Whether one was in progress then, is now, or was in between.
    [[nodiscard]] bool any_since() const noexcept {
      return all.load(std::memory_order_acquire) != then_ || (then_ & (begun - 1)) != 0;
    }

   private:
    std::uint64_t then_;
  };

 private:
  static constexpr std::uint64_t begun = std::uint64_t{1} << 16U;
  // Those in progress in the low bits, and those that began above.
  inline static constinit std::atomic<std::uint64_t> all{0};
  inline static constinit std::atomic<std::uint64_t> forks{0};  // down to this process

  const std::uint64_t process_;
};

}  // namespace pinfold::invalidation
