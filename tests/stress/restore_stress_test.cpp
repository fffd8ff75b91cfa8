// SPDX-License-Identifier: BSD-3-Clause
// Memory that is invalidated around the end of `quiesce` is not registered again, whatever step the two are at.
#include "support/fixtures/local_fixture.hpp"
#include "support/host/settings.hpp"

#include <pinfold/monitors/announce.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <random>
#include <thread>

namespace pinfold::testing::restore_stress_test {
namespace {

constexpr std::uintptr_t base = std::uintptr_t{1} << 40U;
constexpr std::uintptr_t step = 65536;
constexpr std::uintptr_t ranges = 64;

std::uintptr_t nth(std::uintptr_t number) { return base + number * step; }

void* at(std::uintptr_t number) { return reinterpret_cast<void*>(nth(number)); }

/// Invalidates every range once a round, on a thread of its own, from a random moment on.
class invalidator {
 public:
  explicit invalidator(std::function<void(std::uintptr_t)> invalidate)
      : thread_([this, invalidate = std::move(invalidate)](const std::stop_token& stop) { run(stop, invalidate); }) {}

  void begin() { asked_.fetch_add(1); }
  void wait() const {
    while (done_.load() != asked_.load()) std::this_thread::yield();
  }

 private:
  void run(const std::stop_token& stop, const std::function<void(std::uintptr_t)>& invalidate) {
    std::minstd_rand random(static_cast<unsigned>(test_seed()));
    while (!stop.stop_requested()) {
      if (asked_.load() == done_.load()) continue;
      for (auto pause = random() % 20000; pause > 0; --pause) std::atomic_signal_fence(std::memory_order_seq_cst);
      for (std::uintptr_t i = 0; i < ranges; ++i) invalidate(i);
      done_.fetch_add(1);
    }
  }

  std::atomic<unsigned> asked_{0};
  std::atomic<unsigned> done_{0};
  std::jthread thread_;
};

using invalidate_one = void (*)(local_fixture<>&, std::uintptr_t);

void by_call(local_fixture<>& f, std::uintptr_t number) { f.invalidate(nth(number), nth(number) + 4096); }

// The request for other memory reads the event, and makes it pending.
void by_event(local_fixture<>& f, std::uintptr_t number) {
  announce_gone(at(number), 4096);
  f.touch(nth(ranges + 1), nth(ranges + 1) + 4096);
}

class restore_stress : public ::testing::TestWithParam<invalidate_one> {};

TEST_P(restore_stress, R68_what_is_invalidated_while_quiesce_ends_is_not_registered_again) {
  local_fixture f({.shards = 1});
  invalidator other([&](std::uintptr_t number) { GetParam()(f, number); });
  const auto end = std::chrono::steady_clock::now() + stress_time(2);
  std::uint64_t rounds = 0;
  std::uint64_t again = 0;
  for (; std::chrono::steady_clock::now() < end; ++rounds) {
    for (std::uintptr_t i = 0; i < ranges; ++i) f.touch(nth(i), nth(i) + 4096);
    other.begin();
    static_cast<void>(f.cache.quiesce());
    other.wait();  // every range is invalidated now, after its last request
    auto begun = f.cache.restore({.workers = 1});
    ASSERT_TRUE(begun);
    begun->wait();
    for (std::uintptr_t i = 0; i < ranges; ++i) again += f.cached(nth(i), nth(i) + 4096) ? 1 : 0;
    static_cast<void>(f.cache.flush());
  }
  EXPECT_EQ(again, 0U) << "in " << rounds << " rounds";
}

INSTANTIATE_TEST_SUITE_P(invalidated, restore_stress, ::testing::Values(by_call, by_event),
                         [](const auto& one) { return one.param == by_call ? "by_call" : "by_event"; });

}  // namespace
}  // namespace pinfold::testing::restore_stress_test
