// SPDX-License-Identifier: BSD-3-Clause
// The policies of a set of caches: which members are asked, when, and what becomes of those that fail.
#include "support/fixtures/local_fixture.hpp"
#include "support/host/sanitized.hpp"

#include <pinfold/cache_set.hpp>
#include <pinfold/numa.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <stdexcept>
#include <sys/mman.h>
#include <thread>
#include <vector>

namespace pinfold::testing::set_policy_test {
namespace {

constexpr std::uintptr_t place = 0x100000;
auto* const memory = reinterpret_cast<void*>(place);
constexpr std::size_t bytes = 0x2000;

struct four {
  std::array<local_fixture<>, 4> each;
  std::array<pinfold::cache<fake_registrar>*, 4> caches{&each[0].cache, &each[1].cache, &each[2].cache, &each[3].cache};
  std::array<std::uint32_t, 4> distances{21, 10, 10, 32};
  cache_set<fake_registrar> set{caches, distances};

  [[nodiscard]] std::vector<std::size_t> opened() const {
    std::vector<std::size_t> all;
    for (const auto& one : each) all.push_back(one.device->opened);
    return all;
  }
  [[nodiscard]] std::size_t leases() const {
    std::size_t total = 0;
    for (const auto& one : each) total += one.cache.statistics().leases_now;
    return total;
  }
  void refuse(std::size_t number, errc why, int native = 0) {
    each[number].device->fail_opens(
        [=](const range&, access_flags) { return error{why, native_kind::posix, native, "refused by the test"}; });
  }
  auto acquire(const set_options& how) { return set.acquire(memory, bytes, local_access, how); }
};

using counts = std::vector<std::size_t>;

TEST(set_policy, near_first_registers_with_the_near_members_only) {
  four t;
  auto got = t.acquire({.policy = set_policy::near_first});
  ASSERT_TRUE(got) << describe(got.error());
  EXPECT_EQ(t.opened(), (counts{0, 1, 1, 0}));
  EXPECT_EQ(got->size(), 4U);
  EXPECT_EQ(got->pending(), 2U);
  EXPECT_FALSE((*got)[0]);
  EXPECT_TRUE((*got)[1]);
  ASSERT_EQ(got->registrations().size(), 2U);
  EXPECT_EQ(got->registrations()[0].member, 1U);
  EXPECT_EQ(got->registrations()[1].member, 2U);
}

TEST(set_policy, a_far_member_registers_when_it_is_needed_first) {
  four t;
  auto got = t.acquire({.policy = set_policy::near_first});
  ASSERT_TRUE(got);
  for (int i = 0; i < 2; ++i) {
    auto far = got->at(3);
    ASSERT_TRUE(far) << describe(far.error());
    EXPECT_EQ((*far)->registration().key, 1U);
    EXPECT_EQ(*far, &(*got)[3]);
  }
  EXPECT_EQ(t.opened(), (counts{0, 1, 1, 1}));
  EXPECT_EQ(got->pending(), 1U);
  EXPECT_TRUE(got->release());
  EXPECT_EQ(t.leases(), 0U);
  EXPECT_EQ(got->at(3).error(), errc::invalid_argument) << "a released lease has no choices";
}

TEST(set_policy, near_margin_and_distances_of_the_request) {
  four t;
  ASSERT_TRUE(t.acquire({.policy = set_policy::near_first, .near_margin = 11}));
  EXPECT_EQ(t.opened(), (counts{1, 1, 1, 0}));
  four by_request;
  range asked{};
  ASSERT_TRUE(
      by_request.acquire({.policy = set_policy::near_first, .distance = [&](std::size_t member, const range& of) {
                            asked = of;
                            return member == 3 ? 0U : UINT32_MAX;
                          }}));
  EXPECT_EQ(by_request.opened(), (counts{0, 0, 0, 1}));
  EXPECT_EQ(asked, (range{place, place + bytes}));
}

TEST(set_policy, a_near_member_that_fails_leaves_no_lease) {
  four t;
  t.refuse(2, errc::driver_error, EIO);
  const auto got = t.acquire({.policy = set_policy::near_first});
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().native, EIO);
  EXPECT_EQ(t.leases(), 0U);
  EXPECT_EQ(t.opened(), (counts{0, 1, 0, 0})) << "the far ones were not asked";
}

TEST(set_policy, the_next_nearest_replace_near_members_that_fail) {
  four t;
  t.refuse(1, errc::driver_error, EIO);
  t.refuse(2, errc::driver_error, ENODEV);
  auto got = t.acquire({.policy = set_policy::near_first, .required = 1});
  ASSERT_TRUE(got) << describe(got.error());
  EXPECT_EQ(t.opened(), (counts{1, 0, 0, 0})) << "the nearest of the far ones, no more";
  const auto failed = got->failures();
  ASSERT_EQ(failed.size(), 2U);
  EXPECT_EQ(failed[0].member, 1U);
  EXPECT_EQ(failed[0].why.native, EIO);
  EXPECT_EQ(failed[1].why.native, ENODEV);
  EXPECT_EQ(got->pending(), 1U);
}

TEST(set_policy, partial_success_lists_what_failed) {
  four t;
  t.refuse(0, errc::out_of_resources, ENOMEM);
  auto got = t.acquire({.required = 3});
  ASSERT_TRUE(got) << describe(got.error());
  EXPECT_EQ(got->registrations().size(), 3U);
  ASSERT_EQ(got->failures().size(), 1U);
  EXPECT_EQ(got->failures()[0].member, 0U);
  EXPECT_EQ(got->failures()[0].why.code, errc::out_of_resources);
  EXPECT_EQ(got->at(0).error().native, ENOMEM);
  t.refuse(3, errc::not_permitted, EPERM);
  t.set.invalidate(memory, bytes);
  const auto refused = t.acquire({.required = 3});
  ASSERT_FALSE(refused) << "two of four are less than three";
  EXPECT_EQ(refused.error().native, ENOMEM) << "the first that failed";
  EXPECT_EQ(t.leases(), 3U) << "those of the first call";
}

TEST(set_policy, a_failed_member_is_tried_again_on_request) {
  four t;
  t.refuse(0, errc::driver_error, EIO);
  auto got = t.acquire({.required = 1});
  ASSERT_TRUE(got);
  EXPECT_FALSE(got->retry(0));
  t.each[0].device->fail_opens({});
  EXPECT_FALSE(got->at(0)) << "at returns the failure again";
  ASSERT_TRUE(got->retry(0));
  EXPECT_TRUE(got->at(0));
  EXPECT_TRUE(got->failures().empty());
  EXPECT_EQ(got->registrations().size(), 4U);
}

TEST(set_policy, fixed_order_asks_one_after_another_on_the_callers_thread) {
  four t;
  std::vector<std::size_t> order;  // not guarded: another thread would be a race
  const auto caller = std::this_thread::get_id();
  for (std::size_t i = 0; i < 4; ++i)
    t.each[i].device->fail_opens([&, i](const range&, access_flags) -> std::optional<error> {
      EXPECT_EQ(std::this_thread::get_id(), caller);
      order.push_back(i);
      if (i == 3) return error{errc::driver_error, native_kind::posix, EIO, "this rail is dead"};
      return std::nullopt;
    });
  auto got = t.set.acquire(memory, bytes, local_access, std::array<std::size_t, 3>{2, 3, 0},
                           {.policy = set_policy::fixed_order, .required = 2});
  ASSERT_TRUE(got) << describe(got.error());
  EXPECT_EQ(order, (counts{2, 3, 0}));
  ASSERT_EQ(got->failures().size(), 1U);
  EXPECT_EQ(got->failures()[0].member, 3U);
}

TEST(set_policy, fixed_order_ends_at_the_first_failure_if_all_are_required) {
  four t;
  t.refuse(1, errc::driver_error, EIO);
  EXPECT_EQ(t.acquire({.policy = set_policy::fixed_order}).error().native, EIO);
  EXPECT_EQ(t.opened(), (counts{1, 0, 0, 0}));
  EXPECT_EQ(t.leases(), 0U);
}

TEST(set_policy, wrong_options_change_nothing) {
  four t;
  EXPECT_EQ(t.acquire({.required = 0}).error(), errc::invalid_argument);
  EXPECT_EQ(t.acquire({.required = 5}).error(), errc::invalid_argument);
  EXPECT_EQ(t.acquire({.policy = static_cast<set_policy>(9)}).error(), errc::invalid_argument);
  EXPECT_EQ(t.set.acquire(memory, SIZE_MAX, local_access, {.policy = set_policy::near_first}).error(),
            errc::invalid_range);
  const auto threw =
      t.acquire({.policy = set_policy::near_first, .distance = [](std::size_t, const range&) -> std::uint32_t {
                   throw std::runtime_error("no distance");
                 }});
  EXPECT_EQ(threw.error(), errc::out_of_resources);
  EXPECT_EQ(t.opened(), (counts{0, 0, 0, 0}));
}

TEST(set_policy, a_far_member_is_refused_if_the_memory_was_replaced_meanwhile) {
  four t;
  auto got = t.acquire({.policy = set_policy::near_first});
  ASSERT_TRUE(got);
  t.set.invalidate(memory, bytes);
  const auto far = got->at(0);
  ASSERT_FALSE(far) << "its registration would be of other memory than those of the near members";
  EXPECT_EQ(far.error(), errc::stale_handle);
  EXPECT_EQ(t.leases(), 2U) << "the near ones keep theirs";
  EXPECT_TRUE((*got)[1].stale());
}

TEST(set_policy, an_invalidation_during_the_far_registration_is_not_missed) {
  four t;
  auto got = t.acquire({.policy = set_policy::near_first});
  ASSERT_TRUE(got);
  t.each[0].device->fail_opens([&](const range&, access_flags) -> std::optional<error> {
    t.set.invalidate(memory, bytes);
    return std::nullopt;
  });
  EXPECT_FALSE(got->at(0));
}

TEST(set_policy, monitors_tell_that_memory_was_replaced) {
  auto* const page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(page, MAP_FAILED);
  auto device = std::make_shared<fake_device>();
  pinfold::cache<fake_registrar> near(fake_registrar(device), {});
  pinfold::cache<fake_registrar> far(fake_registrar(device), {});
  if (near.monitors().find("userfaultfd") == std::string::npos && near.monitors().find("hooks") == std::string::npos)
    GTEST_SKIP() << near.monitors();
  const std::array caches{&near, &far};
  const std::array<std::uint32_t, 2> distances{0, 1};
  cache_set<fake_registrar> set(caches, distances);
  auto got = set.acquire(page, 4096, local_access, {.policy = set_policy::near_first});
  ASSERT_TRUE(got);
  ASSERT_EQ(::mmap(page, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), page);
  EXPECT_EQ(got->at(1).error(), errc::stale_handle);
  EXPECT_TRUE(got->release());
  ::munmap(page, 4096);
}

TEST(set_policy, threads_ask_for_different_choices_at_the_same_time) {
  four t;
  std::array<std::uint32_t, 4> distances{0, 1, 2, 3};
  cache_set<fake_registrar> set(t.caches, distances);
  for (int round = 0; round < 200; ++round) {
    auto got = set.acquire(memory, bytes, local_access, {.policy = set_policy::near_first});
    ASSERT_TRUE(got);
    std::vector<std::jthread> threads;
    std::atomic<int> bad{0};
    for (std::size_t i = 0; i < 4; ++i)
      threads.emplace_back([&, i] {
        auto one = got->at(i);
        if (!one || !**one) ++bad;
      });
    threads.clear();
    EXPECT_EQ(bad, 0);
    if (round % 3 == 0) set.invalidate(memory, bytes);
  }
  EXPECT_EQ(t.leases(), 0U);
}

// Any member may fail, with any policy: there are leases of all others, or none at all.
TEST(set_policy, any_member_may_fail) {
  for (const auto policy : {set_policy::all, set_policy::near_first, set_policy::fixed_order})
    for (std::size_t required = 0; required <= 4; ++required)  // 0: every member
      for (unsigned failing = 0; failing < 16; ++failing) {
        SCOPED_TRACE(::testing::Message() << static_cast<int>(policy) << ' ' << required << ' ' << failing);
        four t;
        for (std::size_t i = 0; i < 4; ++i)
          if ((failing >> i & 1U) != 0) t.refuse(i, errc::driver_error, 100 + static_cast<int>(i));
        const auto got = t.acquire({.policy = policy, .required = required == 0 ? every_member : required});
        if (!got) {
          EXPECT_EQ(t.leases(), 0U);
          EXPECT_GE(got.error().native, 100);
          continue;
        }
        const auto made = got->registrations();
        const auto failed = got->failures();
        EXPECT_EQ(t.leases(), made.size());
        EXPECT_EQ(made.size() + failed.size() + got->pending(), 4U);
        EXPECT_GE(made.size(), required == 0 ? 1 : required);
        if (required == 0) {
          EXPECT_TRUE(failed.empty());
        }
        for (const auto& one : made) EXPECT_EQ(failing >> one.member & 1U, 0U);
        for (const auto& one : failed) EXPECT_EQ(one.why.native, 100 + static_cast<int>(one.member));
      }
}

// A device whose registrations are of the memory as it is at the open.
struct dated_registrar {
  static constexpr const char* name = "dated";
  struct registration_type {
    std::uint64_t date;
  };
  std::atomic<std::uint64_t>* now;
  [[nodiscard]] registrar_limits limits() const noexcept { return {}; }
  [[nodiscard]] result<registration_type> open(const range&, access_flags) noexcept {
    const auto date = now->load();
    std::this_thread::yield();
    return registration_type{date};
  }
  [[nodiscard]] result<void> close(const registration_type&) noexcept { return {}; }
};

// One thread replaces the memory between the first registrations and the late ones, as a monitor reports it: before.
TEST(set_policy, stress_all_leases_are_of_the_same_memory) {
  std::atomic<std::uint64_t> date{1};
  std::vector<std::unique_ptr<pinfold::cache<dated_registrar>>> each;
  std::vector<pinfold::cache<dated_registrar>*> caches;
  for (int i = 0; i < 3; ++i) {
    each.push_back(std::make_unique<pinfold::cache<dated_registrar>>(dated_registrar{&date}, keeping()));
    caches.push_back(each.back().get());
  }
  const std::array<std::uint32_t, 3> distances{0, 1, 2};
  cache_set<dated_registrar> set(caches, distances);
  std::shared_mutex in_use;  // no program replaces memory that it is just acquiring
  std::atomic<std::size_t> mixed{0}, refused{0}, late{0};
  std::jthread replacing([&](const std::stop_token& over) {
    while (!over.stop_requested()) {
      {
        const std::lock_guard guard(in_use);
        set.invalidate(memory, bytes);
        std::this_thread::yield();
        ++date;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
  std::vector<std::jthread> threads;
  for (int thread = 0; thread < 3; ++thread)
    threads.emplace_back([&] {
      const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(700);
      const auto goes_on = [&] {  // longer where the other thread begins late
        const auto now = std::chrono::steady_clock::now();
        return now < until || ((refused == 0 || late == 0) && now < until + std::chrono::seconds(60));
      };
      while (goes_on()) {
        std::shared_lock guard(in_use);
        auto got = set.acquire(memory, bytes, local_access, {.policy = set_policy::near_first});
        guard.unlock();
        ASSERT_TRUE(got);
        for (std::size_t i = 1; i < 3; ++i) {
          if (i == 2) std::this_thread::sleep_for(std::chrono::microseconds(20));
          const std::shared_lock again(in_use);
          const auto far = got->at(i);
          if (!far) {
            EXPECT_EQ(far.error(), errc::stale_handle);
            ++refused;
          } else if (++late; (*far)->registration().date != (*got)[0].registration().date) {
            ++mixed;
          }
        }
      }
    });
  threads.clear();
  replacing.request_stop();
  replacing.join();
  EXPECT_EQ(mixed, 0U);
  EXPECT_GT(refused, 0U);
  EXPECT_GT(late, 0U);
}

TEST(numa, tells_the_node_of_a_page_that_is_there) {
  std::vector<char> touched(8192, 1);
  const auto node = numa_node_of(touched.data());
  if (!node) GTEST_SKIP() << describe(node.error());
  EXPECT_GE(*node, 0);
  EXPECT_EQ(numa_distance(*node, *node), 10U);
  EXPECT_EQ(numa_distance(*node, unknown_node), 0U);
  EXPECT_EQ(numa_distance(*node, 1000), 255U);
  auto* const untouched = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_EQ(*numa_node_of(untouched), unknown_node);
  ::munmap(untouched, 4096);
  EXPECT_EQ(numa_node_of(untouched).error(), errc::invalid_range);
  const auto by_node = distance_by_node({*node, 1000});
  const auto first = reinterpret_cast<std::uintptr_t>(touched.data());
  EXPECT_LT(by_node(0, {first, first + 1}), by_node(1, {first, first + 1}));
}

TEST(numa, refuses_what_is_no_device) {
  EXPECT_EQ(numa_node_of_rdma("../block/sda").error(), errc::invalid_argument);
  EXPECT_EQ(numa_node_of_rdma("").error(), errc::invalid_argument);
  EXPECT_EQ(numa_node_of_rdma("no_such_device").error(), errc::unsupported);
}

}  // namespace
}  // namespace pinfold::testing::set_policy_test
