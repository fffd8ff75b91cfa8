// SPDX-License-Identifier: BSD-3-Clause
// A thread that waits for the library's mutex gets it, whatever the thread that holds it does.
#include "os/mutex.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace pinfold::testing::mutex_test {
namespace {

using namespace std::chrono_literals;

// Holds the mutex for 20 µs, again and again, as threads do that find the budget full. Now and then sleeps with it, so
// that the other thread gets a processor on a busy machine, though not the mutex.
TEST(mutex, a_thread_that_locks_it_at_once_again_does_not_keep_it) {
  constexpr int turns = 20;
  constexpr int most = 5000 * turns;  // 40 to 200 rounds a turn here, beside 40 busy threads too
  os::mutex mutex;
  std::atomic<int> taken{0};
  std::atomic<bool> given_up{false};
  std::atomic<int> rounds{0};
  std::jthread waiting([&] {
    while (taken < turns && !given_up) {
      const int before = rounds;
      {
        os::scoped_lock guard(mutex);
        ++taken;
      }
      while (rounds == before && taken < turns && !given_up) std::this_thread::yield();
    }
  });
  const auto hold = [](int round) {
    if (round % 1000 == 999) std::this_thread::sleep_for(100ms);
    const auto until = std::chrono::steady_clock::now() + 20us;
    while (std::chrono::steady_clock::now() < until) {
    }
  };
  for (; taken < turns && rounds < most; ++rounds) {
    os::scoped_lock guard(mutex);
    hold(rounds);
  }
  given_up = true;
  EXPECT_LT(rounds, most) << "the other thread had it " << taken << " times";
}

TEST(mutex, one_thread_holds_it_while_others_starve) {
  constexpr int threads = 6;
  constexpr int rounds = 300;
  os::mutex mutex;
  int inside = 0;
  int total = 0;
  bool alone = true;
  std::vector<std::jthread> all;
  for (int i = 0; i < threads; ++i)
    all.emplace_back([&] {
      for (int round = 0; round < rounds; ++round) {
        os::scoped_lock guard(mutex);
        alone = alone && ++inside == 1;
        ++total;
        if (round % 3 == 0) std::this_thread::sleep_for(100us);  // so that others wait for more than a millisecond
        --inside;
      }
    });
  all.clear();
  EXPECT_TRUE(alone);
  EXPECT_EQ(total, threads * rounds);
}

}  // namespace
}  // namespace pinfold::testing::mutex_test
