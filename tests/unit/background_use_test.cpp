// SPDX-License-Identifier: BSD-3-Clause
// Threads of the library that call an engine while its cache ends (R42).
#include "support/doubles/fake_registrar.hpp"
#include "support/fixtures/local_fixture.hpp"

#include <pinfold/detail/engine.hpp>

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace pinfold::testing::background_use_test {
namespace {

using namespace std::chrono_literals;

struct open_cache : pinfold::cache<fake_registrar> {
  using cache::cache;
  using cache_base<fake_registrar>::inside;
};

struct rig {
  std::shared_ptr<fake_device> device = std::make_shared<fake_device>();
  std::unique_ptr<open_cache> cache;
  explicit rig(cache_options options = {})
      : cache(std::make_unique<open_cache>(fake_registrar(device), keeping(std::move(options)))) {}
};

bool acquires(detail::engine* on, std::uintptr_t begin) {
  auto got = detail::acquire(on, {.wanted = {begin, begin + 64}, .need = local_access});
  if (got) return lease_base(*got).release().has_value();
  EXPECT_EQ(got.error().code, errc::closed);
  return false;
}

TEST(background_use, R42_calls_after_the_end_are_refused) {
  rig r;
  auto use = detail::background_use::begin(r.cache->inside());
  ASSERT_TRUE(use);
  {
    const detail::background_use::call during(*use);
    ASSERT_NE(during.on(), nullptr);
    EXPECT_TRUE(acquires(during.on(), 0x10000));
  }
  r.cache.reset();
  EXPECT_EQ(r.device->open_count(), 0U);
  const detail::background_use::call after(*use);
  EXPECT_EQ(after.on(), nullptr);
}

TEST(background_use, R42_the_end_waits_for_a_call) {
  rig r({.drain_timeout = 60s});
  auto use = detail::background_use::begin(r.cache->inside());
  std::atomic<bool> inside{false};
  std::atomic<bool> left{false};
  std::thread worker([&] {
    const detail::background_use::call during(*use);
    inside = true;
    std::this_thread::sleep_for(50ms);
    left = true;
  });
  while (!inside) std::this_thread::yield();
  r.cache.reset();
  EXPECT_TRUE(left);
  worker.join();
}

TEST(background_use, R42_a_call_that_outlasts_the_drain_finds_the_cache_closed) {
  rig r({.drain_timeout = 1ms});
  std::weak_ptr<fake_device> backend = r.device;
  r.device.reset();
  auto use = detail::background_use::begin(r.cache->inside());
  std::atomic<bool> inside{false};
  std::atomic<bool> ended{false};
  std::thread worker([&] {
    const detail::background_use::call during(*use);
    inside = true;
    while (!ended) std::this_thread::yield();
    EXPECT_FALSE(backend.expired()) << "the registrar lives as long as the call";
    EXPECT_FALSE(acquires(during.on(), 0x10000));
  });
  while (!inside) std::this_thread::yield();
  r.cache.reset();
  ended = true;
  worker.join();
  use = {};
  EXPECT_TRUE(backend.expired()) << "nothing is leaked";
}

/// A registrar whose opens wait until the test lets them go on.
struct slow_registrar : fake_registrar {
  using fake_registrar::fake_registrar;
  [[nodiscard]] result<registration_type> open(range memory, access_flags access) noexcept {
    inside = true;
    while (!may_open) std::this_thread::yield();
    return fake_registrar::open(memory, access);
  }
  inline static std::atomic<bool> inside{false};
  inline static std::atomic<bool> may_open{false};
};

TEST(background_use, R42_what_is_opened_after_the_end_is_closed) {
  struct slow_cache : pinfold::cache<slow_registrar> {
    using cache::cache;
    using cache_base<slow_registrar>::inside;
  };
  for (const bool fails : {false, true}) {
    slow_registrar::inside = slow_registrar::may_open = false;
    const auto device = std::make_shared<fake_device>();
    if (fails) device->fail_opens([](auto&&...) { return error{errc::driver_error, native_kind::posix, 5, "no"}; });
    auto cache = std::make_unique<slow_cache>(slow_registrar(device), keeping({.drain_timeout = 0ms}));
    auto use = detail::background_use::begin(cache->inside());
    std::thread worker([&] {
      const detail::background_use::call during(*use);
      auto got = detail::acquire(during.on(), {.wanted = {0x10000, 0x20000}, .need = local_access});
      ASSERT_EQ(got.has_value(), !fails);
      if (got) static_cast<void>(lease_base(*got));
    });
    while (!slow_registrar::inside) std::this_thread::yield();
    cache.reset();
    slow_registrar::may_open = true;
    worker.join();
    EXPECT_EQ(device->open_count(), 0U);
    EXPECT_EQ(device->misuses, 0U);
    use = {};
    EXPECT_EQ(device.use_count(), 1) << "the last use frees the engine";
  }
}

TEST(background_use, R37_does_nothing_in_a_child) {
  rig r;
  auto use = detail::background_use::begin(r.cache->inside());
  const pid_t child = ::fork();
  if (child == 0) {
    const bool refused = detail::background_use::call(*use).on() == nullptr;
    use = {};
    ::_exit(refused ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(background_use, R49_a_moved_from_cache_has_none) {
  EXPECT_EQ(detail::background_use::begin(nullptr).error().code, errc::closed);
}

TEST(background_use, many_calls_race_with_the_end) {
  for (int round = 0; round < 200; ++round) {
    rig r({.drain_timeout = 60s});
    std::vector<std::thread> workers;
    std::atomic<int> started{0};
    for (std::uintptr_t worker = 0; worker < 3; ++worker)
      workers.emplace_back([&, worker, use = std::move(*detail::background_use::begin(r.cache->inside()))] {
        for (std::uintptr_t at = 0;; ++at) {
          const detail::background_use::call now(use);
          if (now.on() == nullptr) break;
          static_cast<void>(acquires(now.on(), (worker << 32U) + 4096 * at));
          ++started;
        }
      });
    while (started < round) std::this_thread::yield();
    r.cache.reset();
    for (auto& one : workers) one.join();
    EXPECT_EQ(r.device->open_count(), 0U);
    EXPECT_EQ(r.device->misuses, 0U);
  }
}

}  // namespace
}  // namespace pinfold::testing::background_use_test
