// SPDX-License-Identifier: BSD-3-Clause
// A process that forbids itself membarrier(2) when it already has a cache: hits take the mutex from then on, and
// everything is evicted, invalidated and closed as before (R5, R12, R42).
#include "support/fixtures/local_fixture.hpp"
#include "support/processes/child_process.hpp"

#include <pinfold/detail/ledger.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <optional>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace pinfold::testing::sandbox_test {
namespace {

constexpr int skipped = 77;

bool forbid_membarrier() {
  std::array<sock_filter, 4> program{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  sock_fprog filter{program.size(), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0;
}

/// Runs the body in a child, as a filter stays. The child's status says whether an expectation failed there.
template <class Body>
void in_sandbox(Body&& body) {
  child_process child([&](line&) {
    body();
    return ::testing::Test::HasFatalFailure() || ::testing::Test::HasNonfatalFailure() ? 1 : 0;
  });
  const int status = child.finish();
  if (status == skipped) GTEST_SKIP() << "no seccomp, or no membarrier, here";
  EXPECT_EQ(status, 0);
}

void sandbox() {
  if (detail::ledger::of_this_thread() == nullptr || !forbid_membarrier()) std::_Exit(skipped);
}

constexpr std::uintptr_t block = 0x10000;

TEST(sandbox, R12_entries_that_were_hit_before_are_evicted) {
  in_sandbox([] {
    local_fixture f({.max_count = 2});
    for (int i = 0; i < 3; ++i) f.touch(block, block + 4096);
    f.touch(2 * block, 2 * block + 4096);
    sandbox();
    for (std::uintptr_t i = 3; i < 100; ++i) f.touch(i * block, i * block + 4096);
    EXPECT_EQ(f.cache.statistics().evicted, 97U);
    EXPECT_EQ(f.device->open_count(), 2U);
    const auto hits = f.cache.statistics().hits;
    f.touch(99 * block, 99 * block + 4096);
    EXPECT_EQ(f.cache.statistics().hits, hits + 1);
    EXPECT_TRUE(f.cached(99 * block, 99 * block + 4096));
    f.expect_sound();
  });
}

TEST(sandbox, R42_flush_and_destruction_close_everything) {
  in_sandbox([] {
    const auto device = std::make_shared<fake_device>();
    std::optional<local_fixture<>> f;
    f.emplace(cache_options{}, device);
    f->touch(block, block + 4096);
    f->touch(2 * block, 2 * block + 4096);
    sandbox();
    EXPECT_TRUE(f->cache.flush());
    EXPECT_EQ(device->open_count(), 0U);
    for (int i = 0; i < 2; ++i) f->touch(block, block + 4096);
    f.reset();
    EXPECT_EQ(device->open_count(), 0U);
  });
}

TEST(sandbox, R5_lease_taken_before_the_sandbox_is_closed_by_its_release) {
  in_sandbox([] {
    local_fixture f;
    f.touch(block, block + 4096);
    auto lease = f.acquire(block, block + 4096);
    sandbox();
    f.invalidate(block, block + 4096);
    EXPECT_EQ(f.device->open_count(), 1U);
    EXPECT_EQ(f.cache.quiesce().error().code, errc::in_use_conflict);
    EXPECT_TRUE(lease->release());
    EXPECT_EQ(f.device->open_count(), 0U);
  });
}

// Threads go on with hits while the barrier fails: nothing is closed under a lease.
TEST(sandbox, R12_nothing_is_closed_under_leases_of_concurrent_hits) {
  in_sandbox([] {
    local_fixture f({.max_count = 3});
    f.touch(block, block + 4096);
    std::atomic<bool> stop{false};
    std::atomic<int> warm{0};
    std::vector<std::jthread> hitting;
    for (int i = 0; i < 2; ++i)
      hitting.emplace_back([&] {
        for (long n = 0; !stop; ++n) {
          auto lease = f.acquire(block, block + 4096);
          ASSERT_TRUE(lease) << describe(lease.error());
          if (!f.device->now().contains(lease->registration().key)) ADD_FAILURE() << "closed under a lease";
          if (n == 1000) ++warm;
        }
      });
    while (warm < 2) std::this_thread::yield();
    sandbox();
    for (std::uintptr_t i = 3; i < 1000; ++i) f.touch(i * block, i * block + 4096);
    stop = true;
    hitting.clear();
    EXPECT_TRUE(f.cache.flush());
    EXPECT_EQ(f.device->open_count(), 0U);
    EXPECT_EQ(f.device->misuses, 0U);
    f.expect_sound();
  });
}

}  // namespace
}  // namespace pinfold::testing::sandbox_test
