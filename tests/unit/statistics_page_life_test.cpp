// SPDX-License-Identifier: BSD-3-Clause
// Whether the process of a statistics page runs, as readers and the processes that remove old pages find out.
#include "observation/page_file.hpp"
#include "os/file.hpp"
#include "support/fixtures/local_fixture.hpp"
#include "support/fixtures/statistics_pages.hpp"
#include "support/host/process_limits.hpp"
#include "support/host/processor_time.hpp"
#include "support/processes/child_process.hpp"
#include "support/processes/in_child.hpp"
#include "support/processes/pid_namespace.hpp"

#include <pinfold/observation/reader.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <sched.h>
#include <string>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace pinfold::testing::statistics_page_life_test {
namespace {

using namespace std::chrono_literals;
using observation::process_state;

struct statistics_page_life : ::testing::Test {
  std::string folder = page_folder::path();
};

cache_options publishing() {
  cache_options made;
  made.publish_statistics = true;
  return made;
}

// Has a page and no cache, so that nothing is published any more, until there is an order.
int publish_once_and_wait(line& talk) {
  {
    const local_fixture f(publishing());
  }
  talk.send(true);
  static_cast<void>(talk.receive<bool>());
  return 0;
}

bool runs_for_an_hour() { return std::chrono::steady_clock::now().time_since_epoch() > 1h; }

/// Makes the last publication of a page older than an hour, if the machine runs for that long.
void make_old(const std::string& path) {
  const std::uint64_t long_ago = 1;
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::pwrite(file, &long_ago, sizeof long_ago, offsetof(observation::page_header, published_at)), 8);
  ::close(file);
}

/// Makes a page as the next process does, which removes old ones, and returns whether the one at `path` is still there.
bool is_kept(const std::string& path) {
  if (const auto made = observation::make_page_file()) ::unlink(made->path.c_str());
  return std::filesystem::exists(path);
}

// Whether the page says that its process has a lock on it.
bool locks_pages(const std::string& path) {
  observation::page_header header{};
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(::pread(file, &header, sizeof header, 0), static_cast<ssize_t>(sizeof header));
  ::close(file);
  return header.locked == 1;
}

TEST_F(statistics_page_life, idle_process_keeps_its_page_where_another_one_has_no_descriptor_left) {
  child_process child(publish_once_and_wait);
  ASSERT_TRUE(child.talk().receive<bool>());
  const auto path = page_of(child.pid()).path;
  make_old(path);
  run_in_child([&] {
    for (const rlim_t left : {1U, 2U, 3U, 4U}) {
      const lowered_limit few(RLIMIT_NOFILE, lowest_free_descriptor() + left);
      if (const auto seen = observation::read_page(path)) {
        EXPECT_NE(seen->state, process_state::ended) << left;
      }
      EXPECT_TRUE(is_kept(path)) << left;
    }
  });
}

TEST_F(statistics_page_life, thread_that_publishes_does_not_spin_after_the_program_closed_all_descriptors) {
  run_in_child([] {
    const local_fixture f(publishing());
    ::closefrom(3);
    EXPECT_TRUE(rests());
  });
}

TEST_F(statistics_page_life, thread_that_publishes_does_not_spin_with_a_descriptor_limit_of_0) {
  run_in_child([] {
    const local_fixture f(publishing());
    const lowered_limit none(RLIMIT_NOFILE, 0);
    EXPECT_TRUE(rests());
  });
}

// The page has the number and the start time that other processes of the namespace see.
TEST_F(statistics_page_life, process_with_the_proc_of_another_pid_namespace_runs) {
  auto child = in_pid_namespace(proc_of::parent, [](line& talk) {
    talk.send(true);
    const local_fixture f(publishing());
    const auto path = observation::find_page(page_folder::path(), ::getpid());
    const pid_t reader = ::fork();
    if (reader == 0) {
      if (::unshare(CLONE_NEWNS) != 0 || !mount_own_proc()) std::_Exit(77);
      std::_Exit(path && seems_to_run(*path) ? 0 : 1);
    }
    int status = 0;
    ::waitpid(reader, &status, 0);
    return WEXITSTATUS(status);
  });
  if (!child.talk().receive<bool>()) GTEST_SKIP() << "no PID namespace may be made here";
  const int status = child.reap();
  if (status == 77) GTEST_SKIP() << "/proc may not be mounted here";
  EXPECT_EQ(status, 0);
}

TEST_F(statistics_page_life, process_killed_in_another_pid_namespace_has_ended_and_its_page_is_removed) {
  auto child = in_pid_namespace(proc_of::itself, publish_once_and_wait);
  if (!child.talk().receive<bool>()) GTEST_SKIP() << "no PID namespace may be made here";
  const auto path = page_of(1).path;
  if (!locks_pages(path)) GTEST_SKIP() << "the file system keeps no lock for a mapping";
  make_old(path);
  EXPECT_EQ(observation::read_page(path)->state, process_state::running);
  run_in_child([&] { EXPECT_TRUE(is_kept(path)); });
  child.kill();
  const auto start = std::chrono::steady_clock::now();
  while (observation::read_page(path)->state != process_state::ended && std::chrono::steady_clock::now() - start < 60s)
    std::this_thread::sleep_for(1ms);
  EXPECT_EQ(observation::read_page(path)->state, process_state::ended);
  if (!runs_for_an_hour()) GTEST_SKIP() << "the machine runs for less than an hour";
  run_in_child([&] { EXPECT_FALSE(is_kept(path)); });
}

// The kernel gives the lock up with the last mapping of the file.
TEST_F(statistics_page_life, killed_parent_has_ended_while_its_child_runs) {
  child_process parent([](line& talk) {
    const local_fixture f(publishing());
    child_process child([&](line&) {
      ::prctl(PR_SET_PDEATHSIG, 0);
      talk.send(true);
      static_cast<void>(talk.receive<bool>());
      return 0;
    });
    return child.reap();
  });
  ASSERT_TRUE(parent.talk().receive<bool>());
  EXPECT_TRUE(seems_to_run(parent.pid()));
  parent.kill();
  EXPECT_EQ(page_of(parent.pid()).state, process_state::ended);
}

TEST_F(statistics_page_life, page_that_another_process_looks_at_is_neither_removed_nor_replaced) {
  child_process child(publish_once_and_wait);
  ASSERT_TRUE(child.talk().receive<bool>());
  const auto path = page_of(child.pid()).path;
  child.kill();
  make_old(path);
  const os::file looks(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  ASSERT_EQ(::flock(looks.number(), LOCK_SH), 0);
  run_in_child([&] { EXPECT_TRUE(is_kept(path)); });
}

}  // namespace
}  // namespace pinfold::testing::statistics_page_life_test
