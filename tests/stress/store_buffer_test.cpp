// SPDX-License-Identifier: BSD-3-Clause
// The one reordering that the protocol depends on: a hit stores its pin and then loads the word; the closer clears the
// word and then loads the pins. Without the barrier both may see the old values; with it they never do. The test shows
// both cases, so it can fail.
#include "os/barrier.hpp"
#include "support/host/settings.hpp"

#include <pinfold/detail/ledger.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <sched.h>
#include <thread>

namespace pinfold::testing::store_buffer_test {
namespace {

struct alignas(128) shared_word {
  std::atomic<std::uint64_t> value{0};
};

/// Two threads that begin each round at nearly the same time, on different processors.
class duel {
 public:
  /// Returns in how many rounds neither thread saw the other's store.
  std::uint64_t run(bool with_barrier, std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    std::thread other([&] { hit(); });
    std::uint64_t both_missed = 0;
    for (std::uint64_t round = 1;; ++round) {
      pin_.value = 0;
      live_.value = 1;
      const bool last = round % 64 == 0 && std::chrono::steady_clock::now() >= end;
      start_.value.store(last ? stop : round);
      if (last) break;
      wait_a_little(round % 1024);  // the other thread needs some time to see the start
      live_.value.store(0, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);
      if (with_barrier && !os::order_everywhere()) ADD_FAILURE() << "no barrier";
      const bool unseen = pin_.value.load(std::memory_order_relaxed) == 0;
      while (done_.value.load() != round) sched_yield_after_a_while();
      if (unseen && saw_live_) ++both_missed;
      ++rounds;
    }
    other.join();
    return both_missed;
  }

  std::uint64_t rounds = 0;

 private:
  static constexpr std::uint64_t stop = UINT64_MAX;

  void hit() {
    for (std::uint64_t seen = 0;;) {
      const auto round = start_.value.load();
      if (round == stop) return;
      if (round == seen) {
        sched_yield_after_a_while();
        continue;
      }
      seen = round;
      detail::store_before_barrier(pin_.value, 1);
      detail::order_on_hit();
      saw_live_ = live_.value.load(std::memory_order_relaxed) == 1;
      done_.value.store(round);
    }
  }
  static void wait_a_little(std::uint64_t steps) {
    for (; steps > 0; --steps) asm volatile("");
  }
  static void sched_yield_after_a_while() {
    thread_local unsigned spins = 0;
    if (++spins % 4096 == 0) ::sched_yield();
  }

  shared_word pin_, live_, start_, done_;
  bool saw_live_ = false;
};

TEST(store_buffer, barrier_makes_one_thread_observe_the_other) {
#if defined(PINFOLD_THREAD_SANITIZER)
  GTEST_SKIP() << "its builds pin with locked instructions, which are barriers";
#endif
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one processor reorders nothing that it could see";
  ASSERT_EQ(os::barrier_in_use(), os::barrier_policy::membarrier);
  duel without;
  const auto missed = without.run(false, std::chrono::milliseconds(stress_time()) / 5);
  std::printf("without: both missed in %llu of %llu rounds (none would prove nothing)\n",
              static_cast<unsigned long long>(missed), static_cast<unsigned long long>(without.rounds));
  duel with;
  EXPECT_EQ(with.run(true, std::chrono::milliseconds(stress_time()) * 4 / 5), 0U);
  std::printf("with: none in %llu rounds\n", static_cast<unsigned long long>(with.rounds));
}

}  // namespace
}  // namespace pinfold::testing::store_buffer_test
