// SPDX-License-Identifier: BSD-3-Clause
// The lock that copies of the library in one process hold while they change libc's code (R38).
#include "monitors/hooks/text_lock.hpp"
#include "support/host/privileges.hpp"
#include "support/host/process_limits.hpp"
#include "support/processes/child_process.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <sys/file.h>
#include <unistd.h>

namespace pinfold::testing::text_lock_test {
namespace {

using namespace std::chrono_literals;

std::chrono::nanoseconds time_to_lock() {
  const auto start = std::chrono::steady_clock::now();
  const monitors::text_lock held;
  return std::chrono::steady_clock::now() - start;
}

std::chrono::nanoseconds time_to_lock_twice() {
  const monitors::text_lock first;
  return time_to_lock();
}

TEST(text_lock, R38_second_copy_waits_for_a_second) { EXPECT_GE(time_to_lock_twice(), 1s); }

TEST(text_lock, R38_second_copy_waits_in_a_process_that_gave_up_its_privileges) {
  child_process child([](line&) {
    if (::geteuid() == 0 && !become_nobody()) return 1;
    return time_to_lock_twice() >= 1s ? 0 : 2;
  });
  EXPECT_EQ(child.reap(), 0);
}

TEST(text_lock, other_users_cannot_take_it) {
  if (::geteuid() != 0) GTEST_SKIP() << "cannot become another user";
  const auto here = "/proc/" + std::to_string(::getpid());
  child_process other([&](line& parent) {
    if (!become_nobody()) return 1;
    for (const auto& file : std::filesystem::directory_iterator(here)) {
      const int opened = ::open(file.path().c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
      if (opened >= 0) ::flock(opened, LOCK_EX | LOCK_NB);
    }
    return parent.send(0) && !parent.receive<int>() ? 0 : 2;
  });
  ASSERT_TRUE(other.talk().receive<int>());
  EXPECT_LT(time_to_lock(), 500ms);
  EXPECT_EQ(other.finish(), 0);
}

TEST(text_lock, reused_number_is_not_closed) {
  const int other = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  const auto number = static_cast<int>(lowest_free_descriptor());
  {
    const monitors::text_lock held;
    ASSERT_EQ(::dup2(other, number), number);
  }
  EXPECT_EQ(::close(number), 0) << "it was closed behind our back";
  ::close(other);
}

}  // namespace
}  // namespace pinfold::testing::text_lock_test
