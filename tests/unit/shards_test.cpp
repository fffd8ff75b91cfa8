// SPDX-License-Identifier: BSD-3-Clause
// Requests that concern several shards of a cache: overlaps, conflicts, room, the end.
#include "core/deadlines.hpp"
#include "core/shard_map.hpp"
#include "core/sync_point.hpp"
#include "support/fixtures/local_fixture.hpp"

#include <atomic>
#include <functional>
#include <future>
#include <latch>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace pinfold::testing::shards_test {
namespace {

using namespace std::chrono_literals;

constexpr std::uintptr_t mebibyte = std::uintptr_t{1} << 20U;
constexpr std::uintptr_t cell = 2 * mebibyte;
constexpr std::uintptr_t base = std::uintptr_t{1} << 40U;

constexpr range small{base, base + 4096};                // belongs to a cell of the smallest size
constexpr range wide{base - 4 * cell, base + 4 * cell};  // belongs to one of the largest, and covers `small`

/// What happens in the driver before it opens or closes.
struct steps {
  std::function<void(const range&)> before_open = [](const range&) {};
  std::function<void()> before_close = [] {};
};

class stepping_registrar : public fake_registrar {
 public:
  stepping_registrar(std::shared_ptr<fake_device> device, std::shared_ptr<steps> in)
      : fake_registrar(std::move(device)), in_(std::move(in)) {}
  [[nodiscard]] result<registration_type> open(range memory, access_flags access) noexcept {
    in_->before_open(memory);
    return fake_registrar::open(memory, access);
  }
  [[nodiscard]] result<void> close(const registration_type& made) noexcept {
    in_->before_close();
    return fake_registrar::close(made);
  }

 private:
  std::shared_ptr<steps> in_;
};

struct stepping_cache {
  std::shared_ptr<fake_device> device = std::make_shared<fake_device>();
  std::shared_ptr<steps> in_driver = std::make_shared<steps>();
  pinfold::cache<stepping_registrar> cache;

  explicit stepping_cache(const cache_options& options)
      : cache(stepping_registrar(device, in_driver), keeping(options)) {}
  auto acquire(const range& where) { return cache.acquire(reinterpret_cast<void*>(where.begin), where.size()); }
};

std::size_t live_in(const std::vector<entry_info>& all) {
  return static_cast<std::size_t>(
      std::ranges::count_if(all, [](const entry_info& one) { return one.state == entry_state::live; }));
}

TEST(shards, R23_a_range_that_is_published_after_one_that_covers_it_is_superseded) {
  for (const std::uint32_t shards : {1U, 2U, 8U, 64U}) {
    stepping_cache f({.shards = shards});
    std::latch in_open(1);
    std::latch may_open(1);
    f.in_driver->before_open = [&](const range& memory) {
      if (!(memory == small)) return;
      in_open.count_down();
      may_open.wait();
    };
    std::thread opener([&] { EXPECT_TRUE(f.acquire(small)); });
    in_open.wait();
    EXPECT_TRUE(f.acquire(wide));
    may_open.count_down();
    opener.join();
    EXPECT_EQ(live_in(f.cache.dump()), 1U) << shards;
    EXPECT_EQ(f.device->open_count(), 1U) << shards;
  }
}

TEST(shards, R23_a_range_supersedes_those_that_it_covers_in_other_shards) {
  local_fixture f({.shards = 64});
  for (auto at = wide.begin; at < wide.end; at += mebibyte) f.touch(at, at + 4096);
  f.touch(wide.begin, wide.end);
  EXPECT_EQ(live_in(f.cache.dump()), 1U);
  EXPECT_TRUE(f.cache.flush());
  f.expect_sound();
}

TEST(shards, a_request_inside_a_registration_of_another_shard_is_a_hit) {
  local_fixture f({.shards = 64});
  f.touch(wide.begin, wide.end);
  for (auto at = wide.begin; at < wide.end; at += mebibyte) f.touch(at, at + 4096);
  EXPECT_EQ(f.cache.statistics().opens, 1U);
  f.invalidate(small.begin, small.end);
  EXPECT_FALSE(f.cached(wide.begin, wide.begin + 4096));
  f.expect_sound();
}

TEST(shards, R23_remote_right_is_taken_from_an_entry_of_another_shard) {
  local_fixture f({.shards = 64});
  f.touch(wide.begin, wide.end, access_flags::remote_write);
  const auto both = f.acquire(small.begin, small.end, access_flags::local_read);
  ASSERT_TRUE(both);
  EXPECT_TRUE(contains_all(f.device->now().at(both->registration().key).access,
                           access_flags::local_read | access_flags::remote_write));
}

TEST(shards, R6_an_idle_obstacle_in_another_shard_is_closed_and_a_leased_one_is_a_conflict) {
  local_fixture f({.shards = 64});
  f.device->refuses_overlaps = true;
  const range beside{small.begin - cell, small.begin + 2048};  // overlaps `small`, and belongs to a larger cell
  f.touch(small.begin, small.end);
  {
    auto lease = f.acquire(beside.begin, beside.end);
    ASSERT_TRUE(lease) << describe(lease.error());
    EXPECT_EQ(f.cache.statistics().conflicts, 1U);
    EXPECT_EQ(f.acquire(small.begin, small.end).error().code, errc::in_use_conflict);
  }
  f.touch(small.begin, small.end);
  f.expect_sound();
}

// The wide registration is opened between the small request's look into other shards and the driver's refusal.
TEST(shards, a_request_that_the_obstacle_in_another_shard_serves_is_served) {
  stepping_cache f({.shards = 64});
  f.device->refuses_overlaps = true;
  decltype(f.acquire(wide)) held = tl::unexpected(error{});
  f.in_driver->before_open = [&](const range& memory) {
    if (memory == small && !held) held = f.acquire(wide);
  };
  const auto lease = f.acquire(small);
  ASSERT_TRUE(held);
  ASSERT_TRUE(lease) << describe(lease.error());
  EXPECT_EQ(lease->registration().key, held->registration().key);
}

/// A cache whose device is full, while another thread's close does not end until `may_close` has counted down.
struct close_that_lasts : stepping_cache {
  std::latch in_close{1};
  std::latch may_close{1};
  std::thread closer;

  explicit close_that_lasts(const cache_options& options) : stepping_cache(options) {
    device->capacity = 1;
    EXPECT_TRUE(acquire({base + 64 * mebibyte, base + 64 * mebibyte + 4096}));
    in_driver->before_close = [&] {
      in_close.count_down();
      may_close.wait();
    };
    closer = std::thread([&] { EXPECT_EQ(cache.evict(1), 1U); });
    in_close.wait();
  }
  void wait_for_the_close() {
    closer.join();
    in_driver->before_close = [] {};
  }
};

TEST(shards, a_request_without_resources_waits_for_a_close_in_any_shard_until_its_deadline) {
  for (const std::uint32_t shards : {1U, 64U}) {
    close_that_lasts f({.shards = shards, .wait_timeout = 300ms});
    const auto before = f.device->calls.load();
    const auto refused = f.acquire(small);
    EXPECT_TRUE(!refused && refused.error() == errc::timed_out) << (refused ? "served" : describe(refused.error()));
    EXPECT_EQ(f.device->calls - before, 1U) << "a driver that is out of resources is not asked again and again";
    f.may_close.count_down();
    f.wait_for_the_close();
  }
}

TEST(shards, a_request_without_resources_is_served_after_a_close_in_any_shard) {
  for (const std::uint32_t shards : {1U, 64U}) {
    close_that_lasts f({.shards = shards, .wait_timeout = 60s});
    std::thread later([&] {
      std::this_thread::sleep_for(1ms);
      f.may_close.count_down();
    });
    EXPECT_TRUE(f.acquire(small));
    later.join();
    f.wait_for_the_close();
  }
}

TEST(shards, R12_all_of_the_budget_can_be_used_in_any_shards) {
  constexpr std::uint64_t count = 300;
  local_fixture f({.max_bytes = count * 4096, .max_count = count, .shards = 64});
  for (const std::uintptr_t apart : {std::uintptr_t{4096}, cell, 5 * cell}) {
    std::vector<decltype(f.acquire(0, 1))> leases;
    for (std::uint64_t i = 0; i < count; ++i) {
      leases.push_back(f.acquire(base + i * apart, base + i * apart + 4096));
      ASSERT_TRUE(leases.back()) << i << ": " << describe(leases.back().error());
    }
    EXPECT_EQ(f.acquire(base - cell, base - cell + 4096).error().code, errc::over_budget);
    EXPECT_EQ(f.cache.statistics().bytes_now, count * 4096);
    leases.pop_back();
    EXPECT_TRUE(f.acquire(base - cell, base - cell + 4096)) << "the idle one makes room, in whatever shard it is";
    leases.clear();
    EXPECT_TRUE(f.cache.flush());
    f.expect_sound();
  }
}

thread_local bool stops_at_points = false;
std::atomic<bool> stopped{false};
std::atomic<bool> may_go_on{false};

void stop_here() noexcept {
  if (!stops_at_points) return;
  stopped = true;
  while (!may_go_on) std::this_thread::yield();
}

// A thread stops while it holds the mutex of one shard. In the others everything goes on.
TEST(shards, R64_misses_and_invalidations_of_different_addresses_run_in_parallel) {
  local_fixture f({.shards = 64});
  const core::shard_map map(64);
  const auto taken = map.shard_of(small);
  f.touch(small.begin, small.end);
  core::at_point = stop_here;
  std::thread inside([&] {
    stops_at_points = true;
    f.invalidate(small.begin, small.end);
  });
  while (!stopped) std::this_thread::yield();
  for (std::uintptr_t i = 1; i < 200; ++i) {
    const auto begin = small.begin + i * cell;
    if (map.shard_of({begin, begin + 64}) == taken) continue;
    f.touch(begin, begin + 64);
    f.invalidate(begin, begin + 64);
    EXPECT_FALSE(f.cached(begin, begin + 64));
  }
  may_go_on = true;
  inside.join();
  core::at_point = nullptr;
  EXPECT_TRUE(f.cache.flush());
  f.expect_sound();
}

TEST(shards, R42_leases_in_several_shards_outlive_their_cache) {
  auto device = std::make_shared<fake_device>();
  std::vector<lease<fake_registrar>> leases;
  {
    pinfold::cache<fake_registrar> all(fake_registrar(device), keeping({.shards = 64, .drain_timeout = 1ms}));
    for (std::uintptr_t i = 0; i < 100; ++i)
      leases.push_back(*all.acquire(reinterpret_cast<void*>(base + i * cell), 64));
  }
  EXPECT_EQ(device->open_count(), 0U);
  for (auto& one : leases) {
    EXPECT_TRUE(one.closed());
    EXPECT_TRUE(one.release());
  }
  EXPECT_EQ(device->misuses, 0U);
}

TEST(shards, quiesce_fails_for_a_lease_in_any_shard) {
  local_fixture f({.shards = 64});
  for (std::uintptr_t i = 0; i < 100; ++i) f.touch(base + i * cell, base + i * cell + 64);
  {
    const auto held = f.acquire(base + 70 * cell, base + 70 * cell + 64);
    ASSERT_TRUE(held);
    EXPECT_EQ(f.cache.quiesce().error().code, errc::in_use_conflict);
  }
  EXPECT_TRUE(f.cache.quiesce());
  EXPECT_EQ(f.device->open_count(), 0U);
}

// Half of the budget is free all the time, so that what is closed for the request goes to the shards in portions.
TEST(shards, R14_request_that_never_fits_is_refused_although_another_thread_opens_all_the_time) {
  const auto usual = std::exchange(core::longest_making_room, 50ms);
  local_fixture f({.max_bytes = 64 * mebibyte, .shards = 4});
  auto held = f.acquire(base, base + 8 * mebibyte);
  ASSERT_TRUE(held);
  std::atomic<bool> refused{false};
  std::thread other([&] {
    for (std::uintptr_t at = 2 * base; !refused; at += mebibyte / 16) static_cast<void>(f.acquire(at, at + 0x1000));
  });
  auto got = std::async(std::launch::async, [&] { return f.acquire(4 * base, 4 * base + 60 * mebibyte); });
  EXPECT_EQ(got.wait_for(20s), std::future_status::ready);
  refused = true;
  EXPECT_EQ(got.get().error().code, errc::over_budget);
  other.join();
  core::longest_making_room = usual;
}

}  // namespace
}  // namespace pinfold::testing::shards_test
