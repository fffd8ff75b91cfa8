// SPDX-License-Identifier: BSD-3-Clause
// Forks a process in which another thread makes the first cache: a thread that the child does not have must not hold
// the once-only initialisation for ever. A program of its own: its process must not have had a cache before.
#include "support/host/sanitized.hpp"
#include "support/processes/child_process.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/registrars/null.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace pinfold::testing::first_cache_fork_stress_test {
namespace {

void make_a_cache(monitor_choice monitor) { const cache one{null_registrar{}, {.monitor = monitor}}; }

// Call it in a process without threads and caches. Returns 0 when a child made a cache of its own.
int fork_while_a_cache_is_made(monitor_choice monitor, std::chrono::microseconds later) {
  std::atomic<bool> begun{false};
  const std::jthread first([&] {
    begun.store(true);
    make_a_cache(monitor);
  });
  while (!begun.load()) std::this_thread::yield();
  std::this_thread::sleep_for(later);
  child_process child([&](line&) {
    ::alarm(100);
    make_a_cache(monitor);
    return 0;
  });
  return child.reap();
}

class first_cache : public ::testing::TestWithParam<monitor_choice> {};

TEST_P(first_cache, R37_fork_while_the_first_cache_is_made_lets_the_child_make_its_own) {
  if (thread_sanitized && GetParam() == monitor_choice::automatic)
    GTEST_SKIP() << "ThreadSanitizer's own lock around dlopen stays taken in a child";
  constexpr int forks = sanitized ? 10 : 60;
  constexpr std::chrono::microseconds step{50};
  for (int i = 0; i < forks; ++i) {
    child_process fresh([&](line&) { return fork_while_a_cache_is_made(GetParam(), i % 30 * step); });
    ASSERT_EQ(fresh.reap(), 0) << "fork " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(monitors, first_cache, ::testing::Values(monitor_choice::manual, monitor_choice::automatic),
                         [](const auto& one) { return one.index == 0 ? "none" : "automatic"; });

}  // namespace
}  // namespace pinfold::testing::first_cache_fork_stress_test
