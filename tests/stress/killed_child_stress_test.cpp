// SPDX-License-Identifier: BSD-3-Clause
// Children that share the parent's memory (vfork, CLONE_VM) and are killed while they unmap some of it. The kernel
// drops the event of a caller that dies before the event is read: userfaultfd alone loses it, and
// `docs/understand/monitors.md` says how often. Hooks post before the call, so nothing is lost where the child calls
// libc.
#include "support/host/raw_calls.hpp"
#include "support/host/sanitized.hpp"
#include "support/host/settings.hpp"
#include "support/host/watchdog.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/registrars/null.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <vector>

namespace pinfold::testing::killed_child_stress_test {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t bytes = 65536;

/// The arguments of a child, which shares this memory.
struct task {
  void* memory = nullptr;
  bool through_libc = false;
  std::atomic<bool> begun{false};
};

int unmap_and_exit(void* argument) {
  auto& mine = *static_cast<task*>(argument);
  mine.begun.store(true);
  if (mine.through_libc) {
    ::munmap(mine.memory, bytes);
  } else {
    raw_call(SYS_munmap, mine.memory, bytes);
  }
  raw_call(SYS_exit, nullptr, 0);
  return 0;
}

// Returns whether the memory is mapped, by a system call that causes no event.
bool is_mapped(void* at) { return ::msync(at, bytes, MS_ASYNC) == 0; }

void wait_about(std::chrono::nanoseconds time) {
  const auto until = steady_clock::now() + time;
  while (steady_clock::now() < until) {
  }
}

struct killed_children : ::testing::Test {
  cache<null_registrar> registrations{null_registrar{}};
  std::mt19937_64 random{test_seed()};
  std::vector<char> stack = std::vector<char>(65536);
  watchdog guard{[] {}};

  /// Counts of the children that are killed, or of the others.
  struct tally {
    std::uint64_t children = 0;
    std::uint64_t unmapped = 0;
    std::uint64_t lost = 0;  // unmapped, and still found
  };
  tally killed;
  tally spared;

  void one_child(bool through_libc, bool kill, tally& seen) {
    void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(at, MAP_FAILED);
    ASSERT_TRUE(registrations.acquire(at, bytes));
    task given{.memory = at, .through_libc = through_libc};
    const pid_t child = ::clone(unmap_and_exit, stack.data() + stack.size(), CLONE_VM | SIGCHLD, &given);
    ASSERT_GT(child, 0);
    while (!given.begun.load()) ::sched_yield();
    wait_about(std::chrono::nanoseconds(random() % 40'000));
    if (kill) ::kill(child, SIGKILL);
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
    ++seen.children;
    if (is_mapped(at)) {
      ::munmap(at, bytes);
    } else {
      ++seen.unmapped;
      if (registrations.find(at, bytes)) ++seen.lost;
      registrations.invalidate(at, bytes);
    }
    guard.beat();
  }

  void many_children(bool through_libc) {
    const auto until = steady_clock::now() + std::chrono::milliseconds(stress_time()) / 2;
    const auto enough = [&] { return steady_clock::now() >= until && spared.children > 0; };
    for (bool kill = true; !enough() && !HasFatalFailure(); kill = !kill)
      one_child(through_libc, kill, kill ? killed : spared);
    for (const auto* one : {&killed, &spared})
      std::printf("%s: of %llu children %s, %llu unmapped it, and of these %llu were not reported\n",
                  through_libc ? "munmap" : "inline munmap", static_cast<unsigned long long>(one->children),
                  one == &killed ? "that were killed" : "that lived", static_cast<unsigned long long>(one->unmapped),
                  static_cast<unsigned long long>(one->lost));
    EXPECT_GT(spared.unmapped, 0U);
    EXPECT_EQ(spared.unmapped, spared.children);
    EXPECT_EQ(spared.lost, 0U);
  }

  void SetUp() override {
    if (registrations.monitors() != "hooks+userfaultfd") GTEST_SKIP() << registrations.monitors();
    if (sanitized) GTEST_SKIP() << "the sanitizers do not know such children";
  }
};

TEST_F(killed_children, R30_killed_children_lose_no_event_of_calls_through_libc) {
  many_children(true);
  EXPECT_EQ(killed.lost, 0U);
}

// The printed counts of killed children are the documented limit; they depend on how soon the monitor's thread runs.
TEST_F(killed_children, R30_surviving_children_lose_no_event_of_inline_calls) {
  if (!has_raw_calls) GTEST_SKIP() << "no inline system calls here";
  many_children(false);
}

}  // namespace
}  // namespace pinfold::testing::killed_child_stress_test
