// SPDX-License-Identifier: BSD-3-Clause
// With `trace_requests`, the sink gets every request, including those that would have been hits
// without the mutex.
#include "support/fixtures/cache_checks.hpp"
#include "support/fixtures/local_fixture.hpp"

#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

namespace pinfold::testing::trace_requests_test {
namespace {

using namespace std::chrono_literals;

/// Keeps the requests that a cache reports.
class request_log {
 public:
  [[nodiscard]] cache_options options() {
    cache_options chosen;
    chosen.trace_requests = true;
    chosen.sink = [this](const event& what) {
      std::lock_guard guard(mutex_);
      if (what.kind == event_kind::requested) seen_.push_back(what);
    };
    return chosen;
  }
  [[nodiscard]] std::vector<event> take() {
    std::lock_guard guard(mutex_);
    return std::exchange(seen_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<event> seen_;
};

TEST(trace_requests, event_has_range_registration_and_cost) {
  request_log log;
  local_fixture f(log.options());
  f.device->limits.granularity = 0x1000;
  f.device->call_takes = 2ms;
  f.touch(0x10010, 0x10020);
  f.touch(0x10800, 0x10900);
  const auto seen = log.take();
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].level, severity::debug);
  EXPECT_EQ(seen[0].where, (range{0x10010, 0x10020}));
  EXPECT_EQ(seen[0].registered, (range{0x10000, 0x11000}));
  EXPECT_FALSE(seen[0].hit);
  EXPECT_GE(seen[0].opened_for, 2ms);
  EXPECT_EQ(seen[1].where, (range{0x10800, 0x10900}));
  EXPECT_EQ(seen[1].registered, (range{0x10000, 0x11000}));
  EXPECT_TRUE(seen[1].hit);
  EXPECT_EQ(seen[1].opened_for, 0ns);
}

TEST(trace_requests, a_failure_is_the_cause_of_its_event) {
  std::vector<std::string> seen;
  cache_options options{.max_bytes = 0x1000, .trace_requests = true};
  options.sink = [&](const event& what) {
    if (what.kind == event_kind::requested) seen.push_back(describe(what));
  };
  local_fixture f(options);
  EXPECT_FALSE(f.acquire(0x10000, 0x12000));
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_NE(seen[0].find("requested peer 0 [0x10000, 0x12000): larger_than_budget"), std::string::npos) << seen[0];
}

TEST(trace_requests, every_hit_of_every_thread_is_traced) {
  request_log log;
  local_fixture f(log.options());
  constexpr std::size_t each = 500;
  const auto work = [&] {
    for (std::size_t i = 0; i < each; ++i) f.touch(0x10000, 0x11000);
  };
  std::thread other(work);
  work();
  other.join();
  const auto seen = log.take();
  EXPECT_EQ(seen.size(), 2 * each);
  EXPECT_EQ(std::count_if(seen.begin(), seen.end(), [](const event& one) { return one.hit; }),
            static_cast<std::ptrdiff_t>(2 * each - 1));
}

TEST(trace_requests, members_of_a_batch_are_traced_one_by_one) {
  request_log log;
  local_fixture<fake_group_registrar> f(log.options());
  const std::vector<range> apart = {{0x1000, 0x2000}, {0x3000, 0x4000}, {0x8000, 0x9000}};
  ASSERT_TRUE(f.cache.acquire_batch(apart, local_access, {.workers = 1}));
  const auto seen = log.take();
  ASSERT_EQ(seen.size(), 3U);
  for (const auto& one : seen) EXPECT_FALSE(one.hit);
  EXPECT_EQ(f.device->calls, 3U);
}

TEST(trace_requests, event_has_peer_and_whole_allocation) {
  request_log log;
  fake_fixture f(log.options());
  const auto handle = f.world->allocate(7, 0x10000, 4096);
  ASSERT_TRUE(f.cache.acquire({7}, handle, 0x10800, 16));
  ASSERT_TRUE(f.cache.acquire({7}, handle, 0x10000, 16));
  const auto seen = log.take();
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].peer, peer_id{7});
  EXPECT_EQ(seen[0].registered, handle.allocation());
  EXPECT_FALSE(seen[0].hit);
  EXPECT_TRUE(seen[1].hit);
}

// A registrar that uses a cache itself, so that an outer request contains an inner one.
struct nested_registrar {
  static constexpr const char* name = "nested";
  struct registration_type {
    std::uint64_t key;
  };
  cache<fake_registrar>* inner;

  [[nodiscard]] registrar_limits limits() const noexcept { return {}; }
  [[nodiscard]] result<registration_type> open(range memory, access_flags access) noexcept {
    std::this_thread::sleep_for(2ms);
    auto* const first = reinterpret_cast<void*>(memory.begin);
    auto held = inner->acquire(first, memory.size(), access);
    if (!held) return tl::unexpected(held.error());
    return registration_type{held->registration().key};
  }
  [[nodiscard]] result<void> close(const registration_type& /*made*/) noexcept { return {}; }
};

TEST(trace_requests, nested_caches_are_traced_separately) {
  request_log inner_log;
  request_log outer_log;
  local_fixture f(inner_log.options());
  f.device->call_takes = 2ms;
  cache<nested_registrar> outer(nested_registrar{&f.cache}, keeping(outer_log.options()));
  ASSERT_TRUE(outer.acquire(reinterpret_cast<void*>(0x1000), 0x1000));
  const auto inner = inner_log.take();
  const auto seen = outer_log.take();
  ASSERT_EQ(inner.size(), 1U);
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_GE(inner[0].opened_for, 2ms);
  EXPECT_GE(seen[0].opened_for, inner[0].opened_for + 2ms);
}

TEST(trace_requests, tracing_is_off_by_default) {
  request_log log;
  auto options = log.options();
  options.trace_requests = false;
  local_fixture f(options);
  f.touch(0x1000, 0x2000);
  f.touch(0x1000, 0x2000);
  EXPECT_TRUE(log.take().empty());
}

}  // namespace
}  // namespace pinfold::testing::trace_requests_test
