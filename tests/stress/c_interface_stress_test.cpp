// SPDX-License-Identifier: BSD-3-Clause
// Many threads on caches of the C interface: leases that are shared, detached, and given back on other threads, while
// entries are evicted, invalidated and flushed. No registration is closed under a lease, closed twice, or left open.
#include "support/fixtures/c_fixture.hpp"
#include "support/host/act.hpp"
#include "support/host/settings.hpp"
#include "support/host/watchdog.hpp"

#include <pinfold/pinfold.h>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace pinfold::testing::c_interface_stress_test {
namespace {

constexpr std::uintptr_t region = 0x10000;
constexpr std::size_t regions = 16;

struct checking_device {
  static constexpr std::size_t keys = std::size_t{1} << 18U;

  std::array<std::atomic<bool>, keys> open{};
  std::atomic<std::uint64_t> next{1};
  std::atomic<std::int64_t> live{0};
  std::atomic<std::uint64_t> wrong{0};

  static int register_it(void* self, const pinfold_open_request* what, pinfold_registration* made, pinfold_error*) {
    auto& own = *static_cast<checking_device*>(self);
    made->words[0] = own.next++ % keys;
    made->words[1] = reinterpret_cast<std::uintptr_t>(what->address);
    if (own.open[made->words[0]].exchange(true)) ++own.wrong;
    ++own.live;
    return PINFOLD_OK;
  }
  static int deregister(void* self, const pinfold_registration* made, pinfold_error*) {
    auto& own = *static_cast<checking_device*>(self);
    if (!own.open[made->words[0]].exchange(false)) ++own.wrong;
    --own.live;
    return PINFOLD_OK;
  }
  void expect_open(const void* registration) {
    if (!open[static_cast<const pinfold_registration*>(registration)->words[0]]) ++wrong;
  }
};

class c_arena {
 public:
  c_arena(std::uint32_t flags, std::size_t budget) {
    auto options = c_options();
    options.flags = flags;
    options.max_count = budget;
    pinfold_registrar calls{};
    calls.size = sizeof calls;
    calls.name = "checking";
    calls.granularity = 1;
    calls.open = checking_device::register_it;
    calls.close = checking_device::deregister;
    EXPECT_EQ(pinfold_create(&calls, device_.get(), &options, &cache_), PINFOLD_OK);
  }

  void act(std::mt19937_64& random) {
    const auto dice = random() % 100;
    if (dice < 60) return use(random);
    if (dice < 70) return exchange_on_shelf(random, pinfold_detach(acquire(random)));
    if (dice < 80) return share(random);
    if (dice < 88) return use_batch(random);
    if (dice < 92) return static_cast<void>(pinfold_evict(cache_, 2));
    if (dice < 97) return static_cast<void>(pinfold_invalidate(cache_, at(random), 1));
    static_cast<void>(dice < 99 ? pinfold_progress(cache_) : pinfold_flush(cache_));
  }

  void finish() {
    for (auto& one : shelf_) give_back(std::exchange(one, nullptr));
    EXPECT_EQ(pinfold_flush(cache_), PINFOLD_OK);
    pinfold_statistics now{};
    now.size = sizeof now;
    EXPECT_EQ(pinfold_statistics_of(cache_, &now), PINFOLD_OK);
    EXPECT_EQ(now.leases_now, 0U);
    EXPECT_EQ(device_->live, 0);
    EXPECT_EQ(device_->wrong, 0U);
    EXPECT_GT(now.hits, 0U);
    EXPECT_EQ(pinfold_destroy(cache_), PINFOLD_OK);
  }

 private:
  static void* at(std::mt19937_64& random) {
    return reinterpret_cast<void*>(region * (1 + random() % regions) + random() % 4 * 4096);
  }

  pinfold_lease acquire(std::mt19937_64& random) {
    const auto lease = random() % 8 == 0 ? pinfold_find(cache_, at(random), 4096, c_local_access)
                                         : pinfold_acquire(cache_, at(random), 4096, c_local_access);
    if (lease.pin != 0) device_->expect_open(pinfold_registration_of(lease));
    return lease;
  }

  void release(pinfold_lease lease) {
    if (lease.pin != 0) device_->expect_open(pinfold_registration_of(lease));
    if (pinfold_release(lease) != PINFOLD_OK) ++device_->wrong;
  }

  void use(std::mt19937_64& random) { release(acquire(random)); }

  void share(std::mt19937_64& random) {
    auto first = acquire(random);
    if (first.pin == 0) return;
    auto second = pinfold_share(first);
    if (random() % 2 == 0) std::swap(first, second);
    release(first);
    exchange_on_shelf(random, pinfold_detach(second));
  }

  void use_batch(std::mt19937_64& random) {
    std::array<pinfold_range, 4> ranges;
    for (auto& one : ranges) one = {reinterpret_cast<std::uintptr_t>(at(random)), 4096};
    std::array<pinfold_lease, 4> leases{};
    if (pinfold_acquire_batch(cache_, ranges.data(), ranges.size(), c_local_access, nullptr, leases.data()) !=
        PINFOLD_OK)
      return;
    for (const auto& one : leases) release(one);
  }

  void exchange_on_shelf(std::mt19937_64& random, const void* registration) {
    const void* old = registration;
    {
      const std::lock_guard guard(shelf_mutex_);
      std::swap(old, shelf_[random() % shelf_.size()]);
    }
    give_back(old);
  }

  void give_back(const void* registration) {
    if (registration == nullptr) return;
    device_->expect_open(registration);
    if (pinfold_release_registration(registration) != PINFOLD_OK) ++device_->wrong;
  }

  std::unique_ptr<checking_device> device_ = std::make_unique<checking_device>();
  pinfold_cache* cache_ = nullptr;
  std::mutex shelf_mutex_;
  std::array<const void*, 8> shelf_{};
};

void run(std::uint32_t flags, std::size_t budget, std::uint64_t threads, std::chrono::milliseconds each) {
  c_arena all(flags, budget);
  watchdog guard([] { std::fprintf(stderr, "a thread of the C interface hangs\n"); });
  act_on_threads(all, threads, each, guard);
  all.finish();
}

TEST(c_interface_stress, no_registration_is_closed_under_a_lease_or_left_open) {
  const auto each = std::chrono::milliseconds(stress_time()) / 6;
  for (const std::uint32_t flags : {0U, std::uint32_t{PINFOLD_NO_RETAIN}, std::uint32_t{PINFOLD_DEFERRED_CLOSES}})
    for (const std::uint64_t threads : {2U, 4U}) run(flags, regions + 8, threads, each);
}

}  // namespace
}  // namespace pinfold::testing::c_interface_stress_test
