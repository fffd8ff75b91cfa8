// SPDX-License-Identifier: BSD-3-Clause
// Monitors across fork, vfork and exec (R37): a child has its own or none, and the parent's stay right.
#include "support/doubles/test_ring.hpp"
#include "support/fixtures/local_fixture.hpp"
#include "support/fixtures/watched_pages.hpp"
#include "support/processes/child_process.hpp"

#include <cstring>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace pinfold::testing::monitors_fork_test {
namespace {

constexpr std::size_t bytes = 65536;
constexpr int usable = PROT_READ | PROT_WRITE;
constexpr int own = MAP_PRIVATE | MAP_ANONYMOUS;

using cache_type = pinfold::cache<fake_registrar>;

struct fork_of_a_monitored_process : ::testing::TestWithParam<monitor_choice> {
  std::shared_ptr<fake_device> device = std::make_shared<fake_device>();
  cache_type cache{fake_registrar{device}, {.monitor = GetParam()}};
  void* at = ::mmap(nullptr, bytes, usable, own, -1, 0);

  void SetUp() override {
    if (cache.monitors().starts_with("none")) GTEST_SKIP() << cache.monitors();
    ASSERT_TRUE(cache.acquire(at, bytes));
  }
  ~fork_of_a_monitored_process() override { ::munmap(at, bytes); }

  static bool replace(void* where) {
    return ::munmap(where, bytes) == 0 && ::mmap(where, bytes, usable, own | MAP_FIXED_NOREPLACE, -1, 0) == where;
  }
  // Returns whether a registration of that memory is stale once the memory was replaced, and not before.
  static bool notices(cache_type& in, void* where) {
    if (!in.acquire(where, bytes) || !in.find(where, bytes)) return false;
    return replace(where) && !in.find(where, bytes);
  }
};

TEST_P(fork_of_a_monitored_process, munmap_in_the_child_causes_no_event_in_the_parent) {
  child_process child([&](line&) { return ::munmap(at, bytes) == 0 ? 0 : 1; });
  EXPECT_EQ(child.finish(), 0);
  EXPECT_TRUE(cache.find(at, bytes)) << "the parent's memory is where it was";
  EXPECT_TRUE(notices(cache, at));
}

TEST_P(fork_of_a_monitored_process, child_uses_no_registration_of_the_parent) {
  child_process child([&](line&) {
    if (cache.find(at, bytes)) return 1;
    auto got = cache.acquire(at, bytes);
    return !got && got.error().code == errc::closed ? 0 : 2;
  });
  EXPECT_EQ(child.finish(), 0);
  EXPECT_EQ(device->open_count(), 1U);
  EXPECT_TRUE(notices(cache, at));
}

TEST_P(fork_of_a_monitored_process, cache_made_in_the_child_is_monitored) {
  child_process child([&](line& talk) {
    cache_type mine(fake_registrar{std::make_shared<fake_device>()}, {.monitor = GetParam()});
    if (mine.monitors() != cache.monitors()) return 1;
    if (!talk.send(1) || !talk.receive<int>()) return 2;  // the parent's monitors are at work, too
    return notices(mine, at) ? 0 : 3;
  });
  ASSERT_TRUE(child.talk().receive<int>());
  EXPECT_TRUE(notices(cache, at));
  ASSERT_TRUE(child.talk().send(1));
  EXPECT_EQ(child.finish(), 0);
  EXPECT_TRUE(notices(cache, at));
}

TEST_P(fork_of_a_monitored_process, vfork_and_exec_change_nothing) {
  char name[] = "/bin/true";
  char* const arguments[] = {name, nullptr};
  pid_t child = 0;
  ASSERT_EQ(::posix_spawn(&child, name, nullptr, nullptr, arguments, environ), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(cache.find(at, bytes));
  EXPECT_TRUE(notices(cache, at));
}

TEST_P(fork_of_a_monitored_process, the_parent_may_end_before_the_child) {
  child_process outer([&](line&) {
    auto inner_cache = std::make_unique<cache_type>(fake_registrar{std::make_shared<fake_device>()},
                                                    cache_options{.monitor = GetParam()});
    child_process inner([&](line& talk) { return talk.receive<int>() && replace(at) ? 0 : 1; });
    inner_cache.reset();  // the cache's monitors end while the child has copies of all
    if (!replace(at) || !inner.talk().send(1)) return 1;
    return inner.finish();
  });
  EXPECT_EQ(outer.finish(), 0);
}

INSTANTIATE_TEST_SUITE_P(monitors, fork_of_a_monitored_process,
                         ::testing::Values(monitor_choice::hooks | monitor_choice::manual, monitor_choice::userfaultfd,
                                           monitor_choice::automatic),
                         [](const auto& one) {
                           return std::string(contains_any(one.param, monitor_choice::hooks) ? "hooks"
                                              : one.param == monitor_choice::userfaultfd     ? "userfaultfd"
                                                                                             : "automatic");
                         });

// The kernel copies pinned pages for the child (Linux 5.12), so the parent's registration stays right.
TEST(fork_of_registered_memory, R37_parent_sends_the_bytes_that_it_writes_after_the_fork) {
  test_ring ring;
  pinfold::cache<io_uring_registrar> cache(registrar_on(ring));
  const int file = ::memfd_create("pinfold-test", MFD_CLOEXEC);
  void* const at = ::mmap(nullptr, bytes, usable, own, -1, 0);
  std::memset(at, 'A', bytes);
  auto held = cache.acquire(at, bytes);
  ASSERT_TRUE(held) << describe(held.error());
  child_process child([&](line& talk) {
    char first = 0;
    const bool told = talk.receive<int>().has_value();
    std::memcpy(&first, at, 1);
    return told && first == 'A' ? 0 : 1;
  });
  std::memset(at, 'B', bytes);
  EXPECT_EQ(ring.write(file, at, bytes, 0, held->registration().index), static_cast<int>(bytes));
  std::vector<char> got(bytes);
  EXPECT_EQ(::pread(file, got.data(), bytes, 0), static_cast<ssize_t>(bytes));
  EXPECT_EQ(got, std::vector<char>(bytes, 'B'));
  ASSERT_TRUE(child.talk().send(1));
  EXPECT_EQ(child.finish(), 0);
  ::munmap(at, bytes);
  ::close(file);
}

}  // namespace
}  // namespace pinfold::testing::monitors_fork_test
