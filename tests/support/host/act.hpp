// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Threads that do random things for a while.
#pragma once

#include "support/host/settings.hpp"
#include "support/host/watchdog.hpp"

#include <chrono>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

namespace pinfold::testing {

/// Calls `all.act(random)` on so many threads for that long, and a thousand times on each, however little time a loaded
/// machine has for it. Each thread has random numbers of its own.
template <class Arena>
void act_on_threads(Arena& all, std::uint64_t threads, std::chrono::milliseconds duration, watchdog& guard) {
  constexpr int least_rounds = 16;
  const auto end = std::chrono::steady_clock::now() + duration;
  std::vector<std::jthread> workers;
  for (std::uint64_t i = 0; i < threads; ++i)
    workers.emplace_back([&, i] {
      std::mt19937_64 random(test_seed() * 1000 + i);
      for (int round = 0; round < least_rounds || std::chrono::steady_clock::now() < end; ++round) {
        for (int n = 0; n < 64; ++n) all.act(random);
        guard.beat();
      }
    });
}

}  // namespace pinfold::testing
