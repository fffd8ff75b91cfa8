// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What the threads of one round share.
#pragma once

#include "arena.hpp"
#include "caches.hpp"
#include "claims.hpp"
#include "filter.hpp"
#include "findings.hpp"
#include "foreign_patch.hpp"
#include "helper_process.hpp"
#include "support/watchdog.hpp"

namespace pinfold::testing::hazard_fuzz {

/// One round: a number of threads, slots of each and of all, caches. A new one for each round.
struct run {
  static constexpr std::size_t own_slots = 2, shared_slots = 6, shared_small_slots = 2;

  std::uint64_t seed;
  unsigned threads;
  unsigned fast_in_64;  ///< how many of 64 steps are fast ones, each of which takes as long as many others
  watching by;
  bool disturbed;          ///< caches come and go, processes fork
  bool enough_huge_pages;  ///< that no fault lacks one while old ones are still registered
  const filter& only;
  const foreign_patch& patch;
  helper_process& helper;
  findings& found;
  counters& done;
  watchdog& guard;
  arena slots;
  caches registered;
  std::atomic<bool> over{false};  ///< threads end their steps

  [[nodiscard]] slot& own_slot(unsigned thread, std::size_t number) {
    return slots.large(shared_slots + thread * own_slots + number);
  }
  [[nodiscard]] slot& shared_slot(std::size_t number) { return slots.large(number); }
  [[nodiscard]] slot& own_small_slot(unsigned thread) { return slots.small(shared_small_slots + thread); }
  [[nodiscard]] slot& shared_small_slot(std::size_t number) { return slots.small(number); }
};

}  // namespace pinfold::testing::hazard_fuzz
