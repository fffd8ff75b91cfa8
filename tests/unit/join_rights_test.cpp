// SPDX-License-Identifier: BSD-3-Clause
// A request that waits for another thread's open gets at least the access that it requested (R56), even when the driver
// refuses the united access and the opener falls back to its own.
#include "support/fixtures/local_fixture.hpp"

#include <algorithm>
#include <thread>

namespace pinfold::testing::join_rights_test {
namespace {

constexpr auto all_local = access_flags::local_read | access_flags::local_write;

/// A device that refuses local writes together with a peer's reads, and tells the test of the first such request.
struct refusing_device {
  std::shared_ptr<fake_device> device = std::make_shared<fake_device>();
  std::shared_ptr<std::atomic<bool>> asked = std::make_shared<std::atomic<bool>>(false);
  std::shared_ptr<std::atomic<bool>> answer = std::make_shared<std::atomic<bool>>(false);

  void refuse(access_flags refused) {
    device->fail_opens([=, asked = asked, answer = answer](const range&, access_flags access) -> std::optional<error> {
      if (!contains_all(access, refused)) return std::nullopt;
      *asked = true;
      while (!*answer) std::this_thread::yield();
      return error{errc::not_permitted, native_kind::posix, 13, "not both"};
    });
  }
};

/// Waits until a second thread has pinned the entry that is being opened.
void wait_for_joiner(local_fixture<>& f) {
  const auto joined = [](const entry_info& one) { return one.state == entry_state::opening && one.leases == 2; };
  for (auto now = f.cache.dump(); std::none_of(now.begin(), now.end(), joined); now = f.cache.dump())
    std::this_thread::yield();
}

TEST(join_rights, R56_open_waiter_looks_again_when_the_opener_got_fewer_rights) {
  refusing_device on;
  local_fixture f({}, on.device);
  f.touch(0x10000, 0x11000, all_local);
  on.refuse(all_local | access_flags::remote_read);

  std::thread opener([&] { EXPECT_TRUE(f.acquire(0x10000, 0x11000, access_flags::remote_read)); });
  while (!*on.asked) std::this_thread::yield();
  std::thread joiner([&] {
    const auto need = access_flags::local_read | access_flags::remote_read;
    auto got = f.acquire(0x10000, 0x11000, need);
    ASSERT_TRUE(got) << describe(got.error());
    EXPECT_TRUE(contains_all(on.device->now().at(got->registration().key).access, need));
  });
  wait_for_joiner(f);
  *on.answer = true;
  opener.join();
  joiner.join();
  EXPECT_EQ(f.cache.statistics().leases_now, 0U);
  EXPECT_TRUE(f.cache.flush());
  f.expect_sound();
}

TEST(join_rights, R56_open_waiter_is_refused_when_the_driver_refuses_its_own_rights) {
  refusing_device on;
  local_fixture f({}, on.device);
  f.touch(0x10000, 0x11000, all_local);
  on.refuse(access_flags::local_write | access_flags::remote_read);

  std::thread opener([&] { EXPECT_TRUE(f.acquire(0x10000, 0x11000, access_flags::remote_read)); });
  while (!*on.asked) std::this_thread::yield();
  std::thread joiner([&] {
    auto got = f.acquire(0x10000, 0x11000, access_flags::local_write | access_flags::remote_read);
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, errc::not_permitted);
  });
  wait_for_joiner(f);
  *on.answer = true;
  opener.join();
  joiner.join();
  EXPECT_EQ(f.cache.statistics().leases_now, 0U);
}

TEST(join_rights, R56_open_waiter_with_fewer_rights_does_not_take_the_openers_error) {
  refusing_device on;
  local_fixture f({}, on.device);
  on.refuse(access_flags::remote_read);
  std::thread opener([&] { EXPECT_FALSE(f.acquire(0x10000, 0x11000, all_local | access_flags::remote_read)); });
  while (!*on.asked) std::this_thread::yield();
  std::thread joiner([&] { EXPECT_TRUE(f.acquire(0x10000, 0x11000, all_local)); });
  wait_for_joiner(f);
  *on.answer = true;
  opener.join();
  joiner.join();
  f.expect_sound();
}

}  // namespace
}  // namespace pinfold::testing::join_rights_test
