// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The state that the threads of one round share.
#pragma once

#include "arena.hpp"
#include "caches.hpp"
#include "claims.hpp"
#include "filter.hpp"
#include "findings.hpp"
#include "foreign_patch.hpp"
#include "helper_process.hpp"
#include "support/host/watchdog.hpp"

#include <atomic>
#include <cstdint>
#include <mutex>

namespace pinfold::testing::hazard_fuzz {

/// One round: a number of threads, slots of each thread and of all, caches. Each round has a new one.
struct run {
  static constexpr std::size_t own_slots = 2, shared_slots = 6, shared_small_slots = 2;

  std::uint64_t seed;
  unsigned threads;
  unsigned fast_in_64;  ///< how many of 64 steps are fast ones, each of which takes as long as many others
  watching by;
  bool disturbed;          ///< caches are made and destroyed, processes fork
  bool enough_huge_pages;  ///< enough that no fault lacks one while old ones are still registered
  const filter& only;
  const foreign_patch& patch;
  helper_process& helper;
  findings& found;
  counters& done;
  watchdog& guard;
  arena slots;
  caches registered;
  std::atomic<bool> over{false};  ///< tells the threads to end their steps
  std::mutex addresses{};

  /// Held while a thread has registered memory whose address the kernel chose, until that is unmapped: without it
  /// another thread gets the address before a monitor that is not the first to know has reported it.
  [[nodiscard]] std::unique_lock<std::mutex> alone_with_addresses() {
    return by.is_first_to_know() ? std::unique_lock<std::mutex>() : std::unique_lock(addresses);
  }

  [[nodiscard]] slot& own_slot(unsigned thread, std::size_t number) {
    return slots.large(shared_slots + thread * own_slots + number);
  }
  [[nodiscard]] slot& shared_slot(std::size_t number) { return slots.large(number); }
  [[nodiscard]] slot& own_small_slot(unsigned thread) { return slots.small(shared_small_slots + thread); }
  [[nodiscard]] slot& shared_small_slot(std::size_t number) { return slots.small(number); }
};

}  // namespace pinfold::testing::hazard_fuzz
