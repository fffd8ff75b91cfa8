// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Registrations in progress on threads of the library: the application may change the memory meanwhile.
#pragma once

#include "os/check.hpp"

#include <atomic>
#include <cstdint>

namespace pinfold::invalidation {

/// Exists from before a thread of the library claims an entry until after the driver has answered.
///
/// The hooks post an event before a call takes memory away. The application does not use memory that it is unmapping,
/// but a thread of the library may register that memory after the event and before the unmap: the entry then has the
/// old pages, and no event follows. So the hooks post again after the call if such a registration was in progress at
/// any time since they checked whether the memory is registered.
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

  /// Clears the count in a child of fork(2), which has no such thread.
  static void forget_in_child() noexcept {
    forks.fetch_add(1, std::memory_order_relaxed);
    all.fetch_and(~(begun - 1), std::memory_order_relaxed);
  }

  /// The registrations in progress at the beginning of a call.
  class look {
   public:
    look() noexcept : then_(all.load(std::memory_order_acquire)) {}
    /// Returns whether a registration was in progress then, is now, or was in between.
    [[nodiscard]] bool any_since() const noexcept {
      return all.load(std::memory_order_acquire) != then_ || (then_ & (begun - 1)) != 0;
    }

   private:
    std::uint64_t then_;
  };

 private:
  static constexpr std::uint64_t begun = std::uint64_t{1} << 16U;
  // Low bits: registrations in progress. Above: registrations that began.
  inline static constinit std::atomic<std::uint64_t> all{0};
  inline static constinit std::atomic<std::uint64_t> forks{0};  // from the first process down to this one

  const std::uint64_t process_;
};

}  // namespace pinfold::invalidation
