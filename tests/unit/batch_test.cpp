// SPDX-License-Identifier: BSD-3-Clause
// Many ranges at once (R26).
#include "support/fixtures/local_fixture.hpp"
#include "support/host/room_for_threads.hpp"
#include "support/host/settings.hpp"

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>
#include <vector>

namespace pinfold {

// Instantiates every member, also without open_many.
template class cache<testing::fake_registrar>;
template class cache<testing::fake_group_registrar>;

}  // namespace pinfold

namespace pinfold::testing::batch_test {
namespace {

using namespace std::chrono_literals;

std::vector<range> blocks(std::size_t count, std::size_t bytes, std::size_t apart = 0x10000) {
  std::vector<range> made;
  for (std::size_t i = 0; i < count; ++i) made.push_back({0x100000 + i * apart, 0x100000 + i * apart + bytes});
  return made;
}

TEST(batch, R26_views_of_few_blocks_register_each_block_once) {
  local_fixture f;
  std::vector<range> views;
  for (std::uintptr_t block = 0; block < 51; ++block)
    for (std::uintptr_t view = 0; view < 25; ++view) {
      const auto base = 0x1000000 * (block + 1);
      views.push_back({base + view * 0x1000, base + view * 0x1000 + 0x1800});
    }
  for (int i = 0; i < 10; ++i) views.insert(views.begin() + i * 7, views[static_cast<std::size_t>(i) * 3]);
  while (views.size() > 1265) views.pop_back();
  ASSERT_EQ(views.size(), 1265U);
  auto batch = f.cache.acquire_batch(views);
  ASSERT_TRUE(batch) << describe(batch.error());
  EXPECT_EQ(batch->size(), 1265U);
  EXPECT_EQ(f.device->opened, 51U);
  EXPECT_EQ(batch->registrations(), 51U);
  const auto now = f.device->now();
  for (std::size_t i = 0; i < views.size(); ++i)
    ASSERT_TRUE(now.at((*batch)[i].registration().key).memory.contains(views[i])) << i;
}

TEST(batch, R26_ranges_with_a_gap_are_not_joined) {
  local_fixture f;
  const std::vector<range> apart = {{0x1000, 0x2000}, {0x2001, 0x3000}, {0x8000, 0x9000}};
  EXPECT_EQ(f.cache.acquire_batch(apart)->registrations(), 3U);
}

TEST(batch, R26_touching_ranges_are_joined_inside_one_mapping_only) {
  local_fixture f;
  std::vector<std::byte> real(0x4000);
  const auto base = reinterpret_cast<std::uintptr_t>(real.data());
  const std::vector<range> touching = {{base, base + 0x1000}, {base + 0x1000, base + 0x2000}};
  EXPECT_EQ(f.cache.acquire_batch(touching)->registrations(), 1U);
  const std::vector<range> nowhere = {{0x1000, 0x2000}, {0x2000, 0x3000}};
  EXPECT_EQ(f.cache.acquire_batch(nowhere)->registrations(), 2U) << "not known to be one mapping";
}

TEST(batch, R26_merging_stops_at_the_largest_registration) {
  local_fixture f;
  f.device->limits.max_bytes = 0x3000;
  const std::vector<range> chain = {{0x1000, 0x3000}, {0x2000, 0x4000}, {0x3000, 0x5000}, {0x4000, 0x6000}};
  auto batch = f.cache.acquire_batch(chain);
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->registrations(), 2U);
}

TEST(batch, R26_merging_stops_where_the_whole_pages_would_be_too_large) {
  local_fixture f;
  f.device->limits.granularity = 0x1000;
  f.device->limits.max_bytes = 0x3000;
  const std::vector<range> both = {{0x1800, 0x3800}, {0x3000, 0x4200}};  // 0x2a00 bytes, but on four pages
  auto batch = f.cache.acquire_batch(both);
  ASSERT_TRUE(batch) << describe(batch.error());
  EXPECT_EQ(batch->registrations(), 2U);
  EXPECT_EQ(f.cache.acquire_batch(both, access_flags::remote_read)->registrations(), 1U)
      << "what is exact, is not rounded";
}

TEST(batch, R26_batch_with_a_failed_member_holds_no_lease) {
  local_fixture f;
  f.device->fail_opens([](const range& memory, access_flags) -> std::optional<error> {
    if (memory.begin != 0x100000 + 500 * 0x10000) return std::nullopt;
    return error{errc::invalid_range, native_kind::posix, 14, "bad memory"};
  });
  auto batch = f.cache.acquire_batch(blocks(1000, 64));
  ASSERT_FALSE(batch);
  EXPECT_EQ(batch.error().native, 14);
  EXPECT_EQ(f.cache.acquire_batch(std::vector<range>{{0x1000, 0x2000}, {0x1800, 0x1800}}).error().code,
            errc::invalid_range)
      << "an empty range inside another is still a mistake";
  EXPECT_EQ(f.cache.statistics().leases_now, 0U);
  EXPECT_EQ(f.cache.acquire_batch(std::vector<range>{{0x1000, 0x2000}, {0x3000, 0x3000}}).error().code,
            errc::invalid_range);
  f.expect_sound();
}

// A worker that takes several ranges at a time ends at the first one that is refused: each further one would wait for
// room as long.
TEST(batch, R26_batch_ends_at_the_first_refusal) {
  local_fixture f({.max_count = 300, .full = when_full::wait, .full_timeout = 20ms});
  EXPECT_EQ(f.cache.acquire_batch(blocks(1000, 0x1000), local_access, {.workers = 1}).error().code, errc::over_budget);
  EXPECT_EQ(f.cache.statistics().failed_acquires, 1U);
  EXPECT_EQ(f.cache.statistics().leases_now, 0U);
}

TEST(batch, R26_open_many_registers_several_ranges_in_one_call) {
  local_fixture<fake_group_registrar> f;
  auto batch = f.cache.acquire_batch(blocks(10'000, 4096), local_access, {.workers = 1});
  ASSERT_TRUE(batch);
  EXPECT_EQ(f.device->opened, 10'000U);
  EXPECT_LE(f.device->calls, 10'000U / 64 + 1);
  auto again = f.cache.acquire_batch(blocks(10'000, 4096));
  EXPECT_EQ(f.device->opened, 10'000U) << "all hits";
  EXPECT_EQ(f.cache.statistics().hits, 10'000U);
  f.expect_sound();
}

TEST(batch, R26_group_that_runs_out_of_resources_evicts_and_retries) {
  local_fixture<fake_group_registrar> f;
  for (const auto& one : blocks(40, 64, 0x1000)) f.touch(0x90000000 + one.begin, 0x90000000 + one.end);
  f.device->capacity = 100;
  auto batch = f.cache.acquire_batch(blocks(90, 64));
  ASSERT_TRUE(batch) << describe(batch.error());
  EXPECT_EQ(f.cache.statistics().evicted, 30U);
  EXPECT_EQ(f.cache.acquire_batch(blocks(200, 64)).error().code, errc::out_of_resources);
  f.expect_sound();
}

TEST(batch, R26_member_of_a_group_is_refused_when_it_is_opened_again_for_an_event) {
  local_fixture<fake_group_registrar> f;
  const auto all = blocks(8, 64);
  int opens = 0;
  f.device->fail_opens([&](const range& memory, access_flags) -> std::optional<error> {
    if (memory.begin != all[3].begin) return std::nullopt;
    if (++opens > 1) return error{errc::invalid_range, native_kind::posix, 14, "bad memory"};
    f.cache.invalidate(reinterpret_cast<void*>(memory.begin), memory.size());
    return std::nullopt;
  });
  auto batch = f.cache.acquire_batch(all);
  ASSERT_FALSE(batch);
  EXPECT_EQ(batch.error().native, 14);
  EXPECT_EQ(opens, 2);
  EXPECT_EQ(f.cache.statistics().failed_acquires, 1U) << "it ended once";
  EXPECT_EQ(f.cache.statistics().leases_now, 0U);
  f.device->fail_opens({});
  EXPECT_TRUE(f.cache.acquire_batch(all));
  f.expect_sound();
}

TEST(batch, R26_budget_holds_for_groups) {
  local_fixture<fake_group_registrar> f({.max_bytes = 64 * 64});
  auto most = f.cache.acquire_batch(blocks(64, 64));
  ASSERT_TRUE(most);
  EXPECT_EQ(f.cache.acquire_batch(blocks(65, 64)).error().code, errc::over_budget);
  EXPECT_EQ(f.cache.statistics().peak_bytes, 64U * 64);
  f.expect_sound();
}

// Returns how many calls of a millisecond are under way at once, on average, with four workers. Other load on the
// machine makes calls longer, too.
double calls_at_once(std::size_t calls) {
  using clock = std::chrono::steady_clock;
  std::atomic<clock::rep> inside{0};
  local_fixture f;
  f.device->on_open = [&] {
    const auto start = clock::now();
    std::this_thread::sleep_for(1ms);
    inside += (clock::now() - start).count();
  };
  const auto start = clock::now();
  EXPECT_TRUE(f.cache.acquire_batch(blocks(calls, 64), local_access, {.workers = 4}));
  const auto at_once = static_cast<double>(inside) / static_cast<double>((clock::now() - start).count());
  std::printf("%zu calls, %.2f at once\n", calls, at_once);
  return at_once;
}

bool at_length() { return stress_time() >= 60s; }  // as in `make soak`

// Returns the best of several batches: on a busy machine a worker may start when the others have nearly finished.
double most_calls_at_once(std::size_t calls, double wanted) {
  double most = 0;
  for (int tries = 0; tries < 20 && most <= wanted; ++tries) most = std::max(most, calls_at_once(calls));
  return most;
}

/// A device whose calls wait until `wanted` of them are under way, but not for ever, and return together.
class meeting_place {
 public:
  explicit meeting_place(int wanted) : wanted_(wanted) {}
  bool meet() {
    std::unique_lock guard(mutex_);
    const int round = here_ / wanted_;
    ++here_;
    all_here_.notify_all();
    return all_here_.wait_for(guard, 60s, [&] { return here_ / wanted_ > round; });
  }

 private:
  const int wanted_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  int here_ = 0;  // guarded by mutex_: calls until now
};

class meeting_registrar : public fake_registrar {
 public:
  explicit meeting_registrar(const std::shared_ptr<fake_device>& device) : fake_registrar(device) {}
  [[nodiscard]] result<registration_type> open(range memory, access_flags access) noexcept {
    if (!place_->meet()) return fail(errc::timed_out, "no other thread came");
    return fake_registrar::open(memory, access);
  }

 private:
  std::shared_ptr<meeting_place> place_ = std::make_shared<meeting_place>(4);
};

/// Each call is one of four at once, from the first to the last.
void expect_four_at_once(std::size_t calls) {
  local_fixture<meeting_registrar> f;
  auto batch = f.cache.acquire_batch(blocks(calls, 64), local_access, {.workers = 4});
  EXPECT_TRUE(batch) << describe(batch.error());
}

TEST(batch, R26_workers_register_in_parallel) {
  expect_four_at_once(1024);
  if (at_length()) {
    EXPECT_GT(most_calls_at_once(10'000, 3.5), 3.5);
  }
}

TEST(batch, R26_workers_share_a_small_batch_evenly) {
  expect_four_at_once(200);
  if (at_length()) {
    EXPECT_GT(most_calls_at_once(200, 3.3), 3.3);
  }
}

TEST(batch, R26_each_worker_without_open_many_opens_one_range_at_a_time) { expect_four_at_once(4); }

TEST(batch, R26_with_open_many_workers_take_whole_groups) {
  local_fixture<fake_group_registrar> f;
  ASSERT_TRUE(f.cache.acquire_batch(blocks(640, 64), local_access, {.workers = 4}));
  EXPECT_EQ(f.device->calls, 10U);
}

TEST(batch, progress_callback_runs_on_the_callers_thread) {
  local_fixture f;
  const auto here = std::this_thread::get_id();
  std::size_t last = 0;
  auto batch = f.cache.acquire_batch(blocks(1000, 64), local_access,
                                     {.workers = 2, .progress = [&](std::size_t done, std::size_t total) {
                                        EXPECT_EQ(std::this_thread::get_id(), here);
                                        EXPECT_GT(done, last);
                                        EXPECT_EQ(total, 1000U);
                                        last = done;
                                      }});
  EXPECT_TRUE(batch);
  EXPECT_EQ(last, 1000U) << "whichever thread did the last of them";
}

TEST(batch, R26_throwing_progress_callback_leaves_no_lease) {
  local_fixture f;
  const auto progress = [](std::size_t, std::size_t) { throw std::bad_alloc(); };
  auto batch = f.cache.acquire_batch(blocks(1000, 64), local_access, {.workers = 2, .progress = progress});
  ASSERT_FALSE(batch);
  EXPECT_EQ(batch.error().code, errc::invalid_argument);
  EXPECT_EQ(f.cache.statistics().leases_now, 0U);
  f.expect_sound();
}

TEST(batch, R26_batch_of_2_to_the_32_ranges_is_refused) {
  local_fixture f;
  const std::vector<range> some = blocks(1, 64);
  const std::span<const range> too_many(some.data(), std::size_t{1} << 32U);  // only `some` may be read
  EXPECT_EQ(f.cache.acquire_batch(too_many).error().code, errc::too_large);
}

TEST(batch, R26_batch_succeeds_when_no_thread_can_be_started) {
  if (sanitized) GTEST_SKIP() << "the sanitizer needs the address space for itself";
  local_fixture f;
  const room_for_threads none(0);
  EXPECT_TRUE(f.cache.acquire_batch(blocks(1000, 64)));
}

}  // namespace
}  // namespace pinfold::testing::batch_test
