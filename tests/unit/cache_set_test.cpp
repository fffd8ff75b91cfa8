// SPDX-License-Identifier: BSD-3-Clause
#include "support/fixtures/local_fixture.hpp"
#include "support/host/room_for_threads.hpp"
#include "support/host/sanitized.hpp"

#include <pinfold/cache_set.hpp>

#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>

namespace pinfold {

template class cache_set<testing::fake_registrar>;

}  // namespace pinfold

namespace pinfold::testing::cache_set_test {
namespace {

using namespace std::chrono_literals;

constexpr std::uintptr_t place = 0x100000;
auto* const memory = reinterpret_cast<void*>(place);
constexpr std::size_t bytes = 0x2000;

struct three {
  std::array<local_fixture<>, 3> each;
  std::array<pinfold::cache<fake_registrar>*, 3> caches{&each[0].cache, &each[1].cache, &each[2].cache};
  cache_set<fake_registrar> set{caches};

  [[nodiscard]] std::array<std::size_t, 3> opened() const {
    return {each[0].device->opened, each[1].device->opened, each[2].device->opened};
  }
  [[nodiscard]] std::size_t leases() const {
    std::size_t total = 0;
    for (const auto& one : each) total += one.cache.statistics().leases_now;
    return total;
  }
  void refuse(std::size_t number, errc why) {
    each[number].device->fail_opens([why](const range&, access_flags) { return error{why}; });
  }
};

TEST(cache_set, registers_with_every_member) {
  three t;
  auto all = t.set.acquire(memory, bytes);
  ASSERT_TRUE(all) << describe(all.error());
  ASSERT_EQ(all->size(), 3U);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_TRUE(t.each[i].device->now().at((*all)[i].registration().key).memory.contains({place, place + bytes}));
  EXPECT_EQ(t.leases(), 3U);
}

TEST(cache_set, registers_with_the_selected_members_in_the_given_order) {
  three t;
  t.each[0].touch(0x900000, 0x901000);  // so that keys differ
  auto some = t.set.acquire(memory, bytes, local_access, std::array<std::size_t, 2>{2, 0});
  ASSERT_TRUE(some) << describe(some.error());
  ASSERT_EQ(some->size(), 2U);
  EXPECT_EQ((*some)[0].registration().key, 1U) << "of the last member";
  EXPECT_EQ((*some)[1].registration().key, 2U) << "of the first";
  EXPECT_EQ(t.opened(), (std::array<std::size_t, 3>{2, 0, 1}));
}

TEST(cache_set, repeated_acquire_hits_in_every_member) {
  three t;
  t.each[1].touch(place, place + bytes);
  ASSERT_TRUE(t.set.acquire(memory, bytes));
  ASSERT_TRUE(t.set.acquire(memory, bytes));
  EXPECT_EQ(t.opened(), (std::array<std::size_t, 3>{1, 1, 1}));
  EXPECT_EQ(t.leases(), 0U);
  t.set.invalidate(memory, bytes);
  ASSERT_TRUE(t.set.acquire(memory, bytes));
  EXPECT_EQ(t.opened(), (std::array<std::size_t, 3>{2, 2, 2}));
}

TEST(cache_set, failed_member_releases_all_leases) {
  three t;
  t.refuse(1, errc::invalid_range);
  const auto refused = t.set.acquire(memory, bytes);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, errc::invalid_range);
  EXPECT_EQ(t.leases(), 0U);
  t.refuse(2, errc::not_permitted);
  t.set.invalidate(memory, bytes);
  EXPECT_EQ(t.set.acquire(memory, bytes).error().code, errc::invalid_range) << "the first that failed";
  EXPECT_EQ(t.leases(), 0U);
  t.each[1].device->fail_opens({});
  t.each[2].device->fail_opens({});
  EXPECT_TRUE(t.set.acquire(memory, bytes));
}

TEST(cache_set, invalid_member_index_is_refused_before_any_registration) {
  three t;
  EXPECT_EQ(t.set.acquire(memory, bytes, local_access, std::array<std::size_t, 2>{0, 3}).error().code,
            errc::invalid_argument);
  EXPECT_EQ(t.opened(), (std::array<std::size_t, 3>{0, 0, 0}));
  auto none = t.set.acquire(memory, bytes, local_access, std::span<const std::size_t>());
  ASSERT_TRUE(none);
  EXPECT_EQ(none->size(), 0U);
}

// Blocks each thread until this many have come.
class meeting {
 public:
  explicit meeting(int people) : missing_(people) {}
  bool come() {
    std::unique_lock lock(mutex_);
    if (--missing_ == 0) all_.notify_all();
    return all_.wait_for(lock, 60s, [this] { return missing_ <= 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_;
  int missing_;
};

TEST(cache_set, members_register_at_the_same_time) {
  three t;
  meeting inside(3);
  for (auto& one : t.each)
    one.device->fail_opens([&](const range&, access_flags) -> std::optional<error> {
      if (!inside.come()) return error{errc::timed_out};
      return std::nullopt;
    });
  auto all = t.set.acquire(memory, bytes);
  EXPECT_TRUE(all) << describe(all.error());
}

TEST(cache_set, without_threads_members_register_one_after_another) {
  if (sanitized) GTEST_SKIP() << "the sanitizer needs the address space for itself";
  three t;
  const room_for_threads none(0);
  EXPECT_TRUE(t.set.acquire(memory, bytes));
}

}  // namespace
}  // namespace pinfold::testing::cache_set_test
