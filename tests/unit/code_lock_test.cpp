// SPDX-License-Identifier: BSD-3-Clause
// The lock between changes of libc's code and other threads' calls of mprotect on it (R53).
#include "monitors/hooks/code_lock.hpp"
#include "os/wiped_pages.hpp"
#include "support/host/once_within.hpp"
#include "support/processes/in_child.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <new>
#include <sys/mman.h>
#include <thread>

namespace pinfold::testing::code_lock_test {
namespace {

using monitors::code_lock;

bool can_change(code_lock& lock) { return code_lock::exclusive(lock).held(); }

TEST(code_lock, change_gives_up_while_a_call_is_under_way) {
  code_lock lock;
  {
    const code_lock::shared call(&lock), another(&lock);
    EXPECT_FALSE(can_change(lock));
  }
  EXPECT_TRUE(can_change(lock));
}

TEST(code_lock, a_call_waits_for_a_change) {
  code_lock lock;
  std::atomic<bool> changed{false};
  std::thread caller;
  {
    const code_lock::exclusive change(lock);
    ASSERT_TRUE(change.held());
    caller = std::thread([&] {
      const code_lock::shared call(&lock);
      EXPECT_TRUE(changed.load());
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    changed.store(true);
  }
  caller.join();
  EXPECT_TRUE(can_change(lock));
}

TEST(code_lock, call_by_the_changing_thread_does_not_wait) {
  code_lock lock;
  EXPECT_TRUE(once_within(std::chrono::milliseconds(200), [&] {
    const code_lock::exclusive change(lock);
    const code_lock::shared call(&lock);
    EXPECT_TRUE(change.held());
  }));
  EXPECT_TRUE(can_change(lock));
}

TEST(code_lock, fork_child_does_not_wait_for_its_parents_threads) {
  auto* const lock = new (os::wiped_pages(sizeof(code_lock))) code_lock;
  {
    const code_lock::shared call(lock);
    run_in_child([&] { EXPECT_TRUE(can_change(*lock)); });
    EXPECT_FALSE(can_change(*lock));
  }
  EXPECT_TRUE(can_change(*lock));
  ::munmap(lock, sizeof(code_lock));
}

}  // namespace
}  // namespace pinfold::testing::code_lock_test
