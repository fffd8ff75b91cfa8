// SPDX-License-Identifier: BSD-3-Clause
// Which memory the userfaultfd monitor refuses to watch, whose memory it watches, and how it ends (R32, R33, R35, R37,
// R38).
#include "os/file.hpp"
#include "os/procmap_query.hpp"
#include "support/fixtures/userfaultfd_fixture.hpp"
#include "support/host/privileges.hpp"
#include "support/host/refused_call.hpp"
#include "support/processes/child_process.hpp"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <linux/userfaultfd.h>
#include <sched.h>
#include <set>
#include <string>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>

namespace pinfold::testing::userfaultfd_life_test {
namespace {

std::size_t mappings_in(const range& pages) {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string one; std::getline(maps, one);) {
    const auto dash = one.find('-');
    const range found{std::stoull(one.substr(0, dash), nullptr, 16), std::stoull(one.substr(dash + 1), nullptr, 16)};
    count += found.overlaps(pages) ? 1 : 0;
  }
  return count;
}

int inherited_userfaultfds() {
  int count = 0;
  for (const auto& one : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    count += std::filesystem::read_symlink(one, gone) == "anon_inode:[userfaultfd]" ? 1 : 0;
  }
  return count;
}

std::set<std::string> names_of_tasks() {
  std::set<std::string> found;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    found.insert(name);
  }
  return found;
}

// The child's handler closes only a descriptor that was noted: none may be made but not noted at a fork.
TEST(userfaultfd_fork, R37_a_child_forked_while_monitors_start_and_end_has_no_userfaultfd) {
  if (auto possible = monitors::uffd::open()) {
    possible->close();
  } else {
    GTEST_SKIP() << describe(possible.error());
  }
  invalidation::event_log event_log;
  invalidation::registered_filter watched;
  std::atomic<int> made{0};
  std::jthread maker([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) made += monitors::make_userfaultfd(event_log, watched).has_value() ? 1 : 0;
  });
  while (made.load() == 0) ::sched_yield();
  for (int i = 0; i < 300; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const pid_t child = ::fork();
    if (child == 0) ::_exit(inherited_userfaultfds());
    // A fork waits for a second at most, and the other thread may get no processor for so long.
    const bool has_waited = std::chrono::steady_clock::now() - start < std::chrono::seconds(1);
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(status == 0 || !has_waited) << "round " << i << ": " << status;
  }
}

TEST_F(userfaultfd_monitor, watches_whole_mappings_so_that_they_are_not_split) {
  mapped memory(512 * page, MAP_PRIVATE | MAP_ANONYMOUS, -1, PROT_READ);
  for (std::size_t i = 0; i < 256; ++i) ASSERT_TRUE(in->watch(memory.part(2 * i * page, (2 * i + 1) * page)));
  EXPECT_EQ(mappings_in(memory.all()), 1U);
}

// A mapping that is split because a part of it is watched cannot be moved in one piece (EFAULT).
TEST_F(userfaultfd_monitor, partly_watched_mapping_stays_movable) {
  constexpr std::size_t bytes = std::size_t{16} << 20U;
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(at, MAP_FAILED);
  const auto middle = reinterpret_cast<std::uintptr_t>(at) + bytes / 2;
  ASSERT_TRUE(in->watch({middle, middle + page}));
  void* const moved = ::mremap(at, bytes, 4 * bytes, MREMAP_MAYMOVE);
  EXPECT_NE(moved, MAP_FAILED);
  ::munmap(moved == MAP_FAILED ? at : moved, moved == MAP_FAILED ? bytes : 4 * bytes);
}

// The price: the program's own userfaultfd cannot watch the rest of the mapping.
TEST_F(userfaultfd_monitor, R38_partly_watched_mapping_is_busy_for_another_userfaultfd) {
  mapped memory(1024 * page);
  ASSERT_TRUE(in->watch(memory.part(0, page)));
  auto other = monitors::uffd::open();
  ASSERT_TRUE(other);
  EXPECT_EQ(monitors::uffd::start_watching(other->number, memory.part(1023 * page, 1024 * page)), EBUSY);
  other->close();
}

TEST_F(userfaultfd_monitor, watches_memory_again_after_mmap_over_it) {
  mapped memory(4 * page);
  ASSERT_TRUE(in.watch_for(memory.all()));
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  ASSERT_NE(::mmap(memory.at(), 4 * page, PROT_READ, flags, -1, 0), MAP_FAILED);
  in.watched.remove(memory.all());
  expect_seen(memory.all(), memory.all(), [&] { return ::munmap(memory.at(), 4 * page) == 0; });
  memory.forget();
}

TEST_F(userfaultfd_monitor, refuses_holes) {
  mapped memory(4 * page, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, PROT_READ, quiet_address);
  ASSERT_TRUE(memory.there());
  ASSERT_EQ(::munmap(memory.at(page), page), 0);
  EXPECT_EQ(in->watch(memory.part(0, 3 * page)).error(), errc::invalid_range);
  EXPECT_EQ(in->watch(memory.part(page, 2 * page)).error(), errc::invalid_range);
  EXPECT_EQ(in->watch(memory.part(2 * page, 5 * page)).error(), errc::invalid_range);
  EXPECT_TRUE(in->watch(memory.part(2 * page, 4 * page)));
}

TEST_F(userfaultfd_monitor, refuses_shared_mappings_of_files_opened_for_reading) {
  const int file = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  mapped memory(page, MAP_SHARED, file, PROT_READ);
  ::close(file);
  const auto told = in->watch(memory.all());
  ASSERT_FALSE(told);
  EXPECT_EQ(told.error(), errc::unsupported) << describe(told.error());
  EXPECT_EQ(told.error().native, EPERM);
}

TEST_F(userfaultfd_monitor, R38_refuses_memory_that_another_userfaultfd_watches) {
  auto other = monitors::uffd::open();
  ASSERT_TRUE(other);
  mapped memory(4 * page);
  ASSERT_EQ(::mprotect(memory.at(page), page, PROT_READ), 0);
  ASSERT_EQ(monitors::uffd::start_watching(other->number, memory.part(page, 2 * page)), 0);
  for (const auto& some : {memory.all(), memory.part(page, 2 * page)}) {
    const auto told = in->watch(some);
    ASSERT_FALSE(told);
    EXPECT_EQ(told.error(), errc::unsupported) << describe(told.error());
    EXPECT_EQ(told.error().native, EBUSY);
  }
  EXPECT_TRUE(in->watch(memory.part(0, page)));
  in.monitor.reset();
  auto third = monitors::uffd::open();
  ASSERT_TRUE(third);
  EXPECT_EQ(monitors::uffd::start_watching(third->number, memory.part(page, 2 * page)), EBUSY) << "still the other's";
  EXPECT_EQ(monitors::uffd::start_watching(third->number, memory.part(0, page)), 0)
      << "no descriptor watches it any more";
  third->close();
  other->close();
}

TEST_F(userfaultfd_monitor, second_monitor_is_refused) {
  const auto second = monitors::make_userfaultfd(in.event_log, in.watched);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error(), errc::unsupported);
  EXPECT_TRUE(in->works());
  in.monitor.reset();
  in.monitor = in.make();
  ASSERT_TRUE(in.monitor) << describe(in.refusal);
  mapped memory(page);
  expect_seen(memory.all(), memory.all(), [&] { return ::madvise(memory.at(), page, MADV_DONTNEED) == 0; });
}

TEST_F(userfaultfd_monitor, leaves_no_descriptor_thread_or_mapping_behind) {
  in.monitor.reset();
  const auto tasks = [] {
    const std::filesystem::directory_iterator all("/proc/self/task");
    return std::distance(begin(all), end(all));
  };
  while (names_of_tasks().contains("pinfold-uffd")) ::sched_yield();  // the kernel lists a joined thread for a moment
  const auto descriptors = open_descriptors();
  const auto threads = tasks();
  const auto bytes = address_space_used();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(in.make()) << describe(in.refusal);
  EXPECT_EQ(open_descriptors(), descriptors);
  while (tasks() != threads) ::sched_yield();  // the kernel lists them a little longer; the watchdog limits the wait
  EXPECT_TRUE(sanitized || address_space_used() < bytes + (std::size_t{1} << 20U));
}

TEST_F(userfaultfd_monitor, R35_monitors_thread_blocks_all_signals_and_has_a_name) {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name != "pinfold-uffd") continue;
    std::ifstream status(task.path() / "status");
    for (std::string word; status >> word;) {
      if (word != "SigBlk:") continue;
      status >> word;
      EXPECT_EQ(std::stoull(word, nullptr, 16) & 0x7ffbfeffULL, 0x7ffbfeffULL) << word;  // all but KILL and STOP
      return;
    }
  }
  FAIL() << "no thread of that name";
}

TEST_F(userfaultfd_monitor, wait_for_events_returns_at_once_without_events) {
  mapped memory(4 * page);
  ASSERT_TRUE(in->watch(memory.all()));
  const auto before = in.event_log.generation().load();
  for (int i = 0; i < 1000; ++i) in->wait_for_events();
  EXPECT_EQ(in.event_log.generation().load(), before);
  EXPECT_TRUE(in->works());
}

// The monitor does not own the process's descriptor numbers: the program may close its descriptor.
TEST_F(userfaultfd_monitor, R35_waiting_threads_continue_after_the_program_closed_all_descriptors) {
  in.monitor.reset();
  child_process child([](line&) {
    uffd_monitor own;
    mapped memory(4 * page);
    if (!own.monitor || !own.watch_for(memory.all())) return 1;
    if (::syscall(SYS_close_range, 3U, ~0U, 0U) != 0) return 2;
    event_log_reader reader(own.event_log);
    if (::munmap(memory.at(), page) != 0) return 3;
    if (!reader.lost(memory.part(0, page))) return 4;
    own->wait_for_events();
    if (own->works()) return 5;
    if (!reader.lost(memory.all())) return 6;
    if (::munmap(memory.at(page), page) != 0) return 7;
    const int other = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    own.monitor.reset();
    if (::fcntl(other, F_GETFD) < 0) return 8;
    return ::munmap(memory.at(2 * page), page) == 0 ? 0 : 9;
  });
  EXPECT_EQ(child.reap(), 0);
}

// Runs in a child. Returns 0 if unmapping, and the monitor's end, wait for nothing after `change`, which makes polls of
// the userfaultfd fail, and if the monitor reports everything as lost then.
template <class F>
int unmap_and_end_after(F change) {
  ::alarm(60);
  uffd_monitor own;
  mapped memory(5 * page);
  if (!own.monitor || !own.watch_for(memory.all())) return 1;
  if (!change()) return 2;
  event_log_reader reader(own.event_log);
  for (std::size_t i = 0; i < 3; ++i)  // the poll in progress succeeds
    if (::munmap(memory.at(i * page), page) != 0) return 3;
  if (own->works() || !reader.lost(memory.all())) return 4;
  if (own->watch(memory.part(3 * page, 4 * page))) return 5;
  own.monitor.reset();
  return ::munmap(memory.at(3 * page), page) == 0 ? 0 : 6;
}

TEST_F(userfaultfd_monitor, R35_waiting_threads_continue_with_a_descriptor_limit_of_0) {
  in.monitor.reset();
  child_process child([](line&) {
    return unmap_and_end_after([] {
      const rlimit none{0, 0};
      return ::setrlimit(RLIMIT_NOFILE, &none) == 0;
    });
  });
  EXPECT_EQ(child.reap(), 0);
}

TEST_F(userfaultfd_monitor, R35_waiting_threads_continue_after_the_program_made_all_descriptors_blocking) {
  in.monitor.reset();
  child_process child([](line&) {
    return unmap_and_end_after([] {
      for (int number = 3; number < 100; ++number) ::fcntl(number, F_SETFL, 0);
      return true;
    });
  });
  EXPECT_EQ(child.reap(), 0);
}

TEST_F(userfaultfd_monitor, R32_works_for_an_ordinary_user) {
  in.monitor.reset();
  child_process child([](line&) {
    if (::geteuid() == 0 && !become_nobody()) return 1;
    uffd_monitor own;
    mapped memory(4 * page);
    if (!own.monitor || !own.watch_for(memory.all())) return 2;
    event_log_reader reader(own.event_log);
    if (::munmap(memory.at(), page) != 0) return 3;
    own->wait_for_events();
    return reader.lost(memory.part(0, page)) && own->works() ? 0 : 4;
  });
  EXPECT_EQ(child.reap(), 0);
}

// Runs in a child. Returns 0 if unmapping waits for nothing once the monitor has ended, though another child has a copy
// of the userfaultfd, which keeps the watch alive. `before` runs before the monitor is made, `after` before it ends.
template <class B, class A>
int unmap_beside_a_copy(B before, A after) {
  ::alarm(60);
  mapped memory(4 * page);
  const pid_t parent = ::getpid();
  pid_t copy = -1;
  if (!before()) return 1;
  {
    uffd_monitor own;
    if (!own.monitor || !own.watch_for(memory.all())) return 2;
    copy = static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
    if (copy == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() == parent) ::pause();
      ::_exit(0);
    }
    if (copy < 0 || !after()) return 3;
  }
  const bool unmapped = ::munmap(memory.at(), page) == 0;
  ::kill(copy, SIGKILL);
  return unmapped && ::waitpid(copy, nullptr, 0) == copy ? 0 : 4;
}

bool nothing() { return true; }
bool close_all() { return ::syscall(SYS_close_range, 3U, ~0U, 0U) == 0; }
bool refuse_queries() { return refuse_request(os::procmap_query_request, ENOTTY); }
bool refuse_to_open() { return refuse_call(SYS_openat, EACCES); }

// An ordinary user may not see which pages are watched.
TEST_F(userfaultfd_monitor, R37_no_thread_of_an_ordinary_user_waits_after_the_monitor_ended) {
  in.monitor.reset();
  child_process child(
      [](line&) { return unmap_beside_a_copy([] { return ::geteuid() != 0 || become_nobody(); }, nothing); });
  EXPECT_EQ(child.reap(), 0);
}

TEST_F(userfaultfd_monitor, R37_no_thread_waits_after_the_monitor_ended_before_linux_6_11) {
  in.monitor.reset();
  child_process child([](line&) { return unmap_beside_a_copy(refuse_queries, nothing); });
  EXPECT_EQ(child.reap(), 0);
}

TEST_F(userfaultfd_monitor, R37_no_thread_waits_after_the_monitor_ended_where_nothing_lists_the_mappings) {
  const os::file without_device(static_cast<int>(::syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY)));
  if (!without_device) GTEST_SKIP() << "userfaultfd needs its device here";
  in.monitor.reset();
  child_process child([](line&) {
    if (const int failed = unmap_beside_a_copy(refuse_to_open, nothing); failed != 0) return failed;
    const uffd_monitor another;
    if (another.monitor) return 5;  // it would leave another thread that reads for good
    return another.refusal.native == EACCES ? 0 : 6;
  });
  EXPECT_EQ(child.reap(), 0);
}

// The end of the monitor finds no userfaultfd in such a table.
TEST_F(userfaultfd_monitor, R35_no_thread_waits_after_one_with_descriptors_of_its_own_ended_it) {
  in.monitor.reset();
  child_process child([](line&) {
    ::alarm(60);
    uffd_monitor own;
    mapped memory(4 * page);
    if (!own.monitor || !own.watch_for(memory.all())) return 1;
    constexpr unsigned unshare = 2;  // CLOSE_RANGE_UNSHARE
    std::thread([&] {
      static_cast<void>(::syscall(SYS_close_range, 3U, ~0U, unshare));
      own.monitor.reset();
    }).join();
    return ::munmap(memory.at(), page) == 0 ? 0 : 2;
  });
  EXPECT_EQ(child.reap(), 0);
}

int descriptors_of_this_thread() {
  const std::filesystem::directory_iterator all("/proc/thread-self/fd");
  return static_cast<int>(std::distance(begin(all), end(all)));
}

// The tables are alike, so each new userfaultfd gets the number that the earlier one has in the other table.
TEST_F(userfaultfd_monitor, R35_threads_with_descriptors_of_their_own_restart_it_in_turn) {
  in.monitor.reset();
  child_process child([](line&) {
    ::alarm(60);
    std::atomic<int> turn{0};
    invalidation::monitor* started = nullptr;
    int more = 0;
    std::thread other([&] {
      if (::unshare(CLONE_FILES) != 0) more = 1000;
      turn = 1;
      int before = 0;
      for (int i = 0; i < 20; ++i) {
        while (turn % 2 != 0) ::sched_yield();
        static_cast<void>(started->ensure_works());
        if (i == 1) before = descriptors_of_this_thread();
        ++turn;
      }
      more += descriptors_of_this_thread() - before;
    });
    while (turn != 1) ::sched_yield();
    uffd_monitor own;
    mapped memory(4 * page);
    if (!own.monitor) return 1;
    started = own.monitor.get();
    int before = 0;
    for (int i = 0; i < 20; ++i) {
      ++turn;
      while (turn % 2 == 0) ::sched_yield();
      if (own->watch(memory.all())) return 2;  // by the earlier userfaultfd, whose events no thread reads
      static_cast<void>(own->ensure_works());
      if (i == 1) before = descriptors_of_this_thread();
    }
    other.join();
    if (more != 0) return 3;
    if (descriptors_of_this_thread() != before) return 4;
    if (!own->watch(memory.all())) return 5;
    return ::munmap(memory.at(), page) == 0 ? 0 : 6;
  });
  EXPECT_EQ(child.reap(), 0);
}

TEST_F(userfaultfd_monitor, R35_no_thread_waits_where_a_child_has_a_copy_of_what_the_program_closed) {
  in.monitor.reset();
  child_process child([](line&) { return unmap_beside_a_copy(nothing, close_all); });
  EXPECT_EQ(child.reap(), 0);
}

TEST_F(userfaultfd_monitor, R35_no_thread_waits_where_the_program_may_open_no_file_any_more) {
  in.monitor.reset();
  child_process child([](line&) {
    return unmap_beside_a_copy(nothing, [] {
      const rlimit none{0, 0};
      return close_all() && ::setrlimit(RLIMIT_NOFILE, &none) == 0;
    });
  });
  EXPECT_EQ(child.reap(), 0);
}

TEST_F(userfaultfd_monitor, R35_monitor_ends_where_a_filter_refuses_to_discard_memory) {
  in.monitor.reset();
  child_process child([](line&) {
    ::alarm(60);
    uffd_monitor own;
    mapped memory(4 * page);
    if (!own.monitor || !own.watch_for(memory.all())) return 1;
    if (!refuse_call(SYS_madvise, EPERM)) return 2;
    own.monitor.reset();
    return ::munmap(memory.at(), page) == 0 ? 0 : 3;
  });
  EXPECT_EQ(child.reap(), 0);
}

// Locked pages are discarded only by calls that ask for it explicitly.
TEST_F(userfaultfd_monitor, R35_monitor_ends_when_all_memory_is_locked) {
  in.monitor.reset();
  constexpr int not_allowed = 77;
  child_process child([](line&) {
    ::alarm(60);
    uffd_monitor own;
    mapped memory(4 * page);
    if (!own.monitor || !own.watch_for(memory.all())) return 1;
    if (::mlockall(MCL_CURRENT | MCL_FUTURE) != 0) return not_allowed;
    own.monitor.reset();
    const uffd_monitor another;
    return another.monitor ? 0 : 2;
  });
  const int ended = child.reap();
  if (ended == not_allowed) GTEST_SKIP() << "this process may not lock its memory";
  EXPECT_EQ(ended, 0);
}

// Returns the refusal in a child whose system calls of that number fail so.
error refusal_where(int number, int native) {
  child_process child([&](line& parent) {
    if (!refuse_call(number, native)) return 1;
    const int before = open_descriptors();
    error said{};
    {
      uffd_monitor in;
      if (!in.monitor) said = in.refusal;
    }
    if (open_descriptors() != before) return 2;
    return parent.send(said) ? 0 : 3;
  });
  const auto said = child.talk().receive<error>();
  EXPECT_EQ(child.reap(), 0);
  return said.value_or(error{});
}

TEST_F(userfaultfd_monitor, R33_failed_creation_returns_the_reason) {
  in.monitor.reset();
  const auto forbidden = refusal_where(SYS_userfaultfd, EPERM);
  EXPECT_EQ(forbidden, errc::not_permitted);
  EXPECT_EQ(forbidden.native, EPERM);
  EXPECT_EQ(refusal_where(SYS_userfaultfd, ENOSYS), errc::unsupported);
  EXPECT_EQ(refusal_where(SYS_userfaultfd, EINVAL), errc::unsupported);
  EXPECT_EQ(refusal_where(SYS_userfaultfd, EMFILE), errc::out_of_resources);
  const auto no_table = refusal_where(SYS_close_range, EPERM);
  EXPECT_EQ(no_table, errc::out_of_resources);
  EXPECT_EQ(no_table.native, EPERM);
}

TEST_F(userfaultfd_monitor, R37_fork_child_has_no_userfaultfd_and_the_parent_keeps_working) {
  mapped memory(4 * page);
  ASSERT_TRUE(in.watch_for(memory.all()));
  const int before = open_descriptors();
  child_process child([&](line&) {
    if (in->works()) return 1;
    if (open_descriptors() != before - 2 + 1) return 2;  // plus one for the line
    if (in->watch(memory.all()).error() != errc::closed) return 3;
    in->wait_for_events();
    if (::munmap(memory.at(), page) != 0) return 4;
    in.monitor.reset();
    uffd_monitor own;
    if (!own.monitor || !own.watch_for(memory.part(page, 2 * page))) return 5;
    event_log_reader reader(own.event_log);
    if (::munmap(memory.at(page), page) != 0) return 6;
    return reader.lost(memory.part(page, 2 * page)) ? 0 : 7;
  });
  event_log_reader reader(in.event_log);
  EXPECT_EQ(child.reap(), 0);
  EXPECT_TRUE(reader.ranges().empty()) << "the child's memory is not the parent's";
  EXPECT_TRUE(in->works());
  in.watched.remove(memory.all());
  expect_seen(memory.all(), memory.all(), [&] { return ::munmap(memory.at(), 4 * page) == 0; });
  memory.forget();
}

}  // namespace
}  // namespace pinfold::testing::userfaultfd_life_test
