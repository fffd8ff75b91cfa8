// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// How long and with which seed the random tests run: PINFOLD_TEST_SECONDS, PINFOLD_TEST_STEPS, PINFOLD_TEST_SEED.
#pragma once

#include "support/host/sanitized.hpp"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace pinfold::testing {

inline std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

/// Returns how long a stress test runs: PINFOLD_TEST_SECONDS. Without that, `cases` of one kind share five seconds.
inline std::chrono::milliseconds stress_time(unsigned cases = 1) {
  const auto chosen = setting("PINFOLD_TEST_SECONDS", 0);
  return std::chrono::milliseconds(chosen == 0 ? 5000 / cases : chosen * 1000);
}

/// Returns how many steps a model test takes: PINFOLD_TEST_STEPS. ThreadSanitizer makes them five times as slow.
inline std::uint64_t model_steps() { return setting("PINFOLD_TEST_STEPS", thread_sanitized ? 30'000 : 100'000); }

/// The seed of this run, printed so that the run can be replayed.
inline std::uint64_t test_seed() {
  static const std::uint64_t seed = [] {
    const auto chosen = setting("PINFOLD_TEST_SEED", std::random_device{}());
    std::printf("replay with PINFOLD_TEST_SEED=%llu\n", static_cast<unsigned long long>(chosen));
    return chosen;
  }();
  return seed;
}

}  // namespace pinfold::testing
