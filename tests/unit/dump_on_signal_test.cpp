// SPDX-License-Identifier: BSD-3-Clause
// Dumps that a signal handler writes.
#include "debugging/table.hpp"
#include "os/mutex.hpp"
#include "support/fixtures/local_fixture.hpp"
#include "support/host/privileges.hpp"
#include "support/host/process_limits.hpp"
#include "support/host/sanitized.hpp"
#include "support/processes/in_child.hpp"
#include "support/processes/pid_namespace.hpp"

#include <pinfold/dump_on_signal.hpp>
#include <pinfold/pinfold.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace pinfold::testing::dump_on_signal_test {
namespace {

std::string contents(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::size_t count_of(const std::string& what, const std::string& in) {
  std::size_t count = 0;
  for (auto at = in.find(what); at != std::string::npos; at = in.find(what, at + 1)) ++count;
  return count;
}

std::atomic<int> earlier_calls{0};
void count_call(int) { ++earlier_calls; }

/// A folder of its own. Handlers stay for the life of a process, so that each test runs in a child.
class signal_dump : public ::testing::Test {
 protected:
  signal_dump() { std::filesystem::create_directory(folder_); }
  ~signal_dump() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string file(int process = getpid()) const {
    return folder_ + "/pinfold." + std::to_string(process) + ".dump";
  }
  [[nodiscard]] std::string dumped() const { return contents(file()); }

  static std::string folder_of(int process) { return ::testing::TempDir() + "pinfold_dump_" + std::to_string(process); }

  const std::string folder_ = folder_of(getpid());
};

TEST_F(signal_dump, writes_the_entries_to_a_file_and_appends) {
  run_in_child([&] {
    ASSERT_TRUE(dump_on_signal(SIGUSR2, folder_));
    local_fixture f({.name = "in \"file\"\n", .max_count = 5});
    f.touch(0x10000, 0x11000);
    const auto lease = f.acquire(0x20000, 0x21000, access_flags::local_read, {.persistent = true});
    ::raise(SIGUSR2);
    const auto text = dumped();
    EXPECT_TRUE(text.starts_with("dump process=" + std::to_string(getpid()) + " thread=")) << text;
    EXPECT_EQ(count_of("\ncache name=\"in ?file??\" registrar=\"pretend\" ", text), 1U) << text;
    EXPECT_EQ(count_of("\nentry 0x10000-0x11000 bytes=4096 state=live access=rw leases=0 ", text), 1U) << text;
    EXPECT_EQ(count_of("\nentry 0x20000-0x21000 bytes=4096 state=live access=r leases=1 ", text), 1U) << text;
    EXPECT_EQ(count_of(" owner=" + std::to_string(gettid()) + " owner_lives=1 flags=persistent,hittable\n", text), 1U);
    EXPECT_EQ(count_of(" acquires=2 opens=2 closes=0 ", text), 1U) << text;
    EXPECT_TRUE(text.ends_with("\ncache_end complete=1\ndump_end outcome=done\n")) << text;
    ::raise(SIGUSR2);
    EXPECT_TRUE(dumped().starts_with(text)) << "an earlier dump stays";
    EXPECT_EQ(count_of("dump_end", dumped()), 2U);
    EXPECT_EQ(std::filesystem::status(file()).permissions(), std::filesystem::perms(0600));
  });
}

TEST_F(signal_dump, limit_on_the_size_of_files_cuts_the_dump_off) {
  run_in_child([&] {
    ASSERT_TRUE(dump_on_signal(SIGUSR2, folder_));
    const local_fixture f;
    const lowered_limit low(RLIMIT_FSIZE, 100);
    ::raise(SIGUSR2);
    EXPECT_EQ(dumped().size(), 100U);
  });
}

TEST_F(signal_dump, on_standard_error_that_nobody_reads_ends_no_process) {
  run_in_child([&] {
    ASSERT_TRUE(dump_on_signal(SIGUSR2));
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    const int before = ::dup(STDERR_FILENO);
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]);
    ::raise(SIGUSR2);
    ::dup2(before, STDERR_FILENO);
  });
}

TEST_F(signal_dump, file_does_not_become_the_programs_standard_error) {
  run_in_child([&] {
    ASSERT_TRUE(dump_on_signal(SIGUSR2, folder_));
    const int before = ::dup(STDERR_FILENO);
    ::close(STDERR_FILENO);
    ::raise(SIGUSR2);
    const bool taken = ::fcntl(STDERR_FILENO, F_GETFD) >= 0;
    ::dup2(before, STDERR_FILENO);
    EXPECT_FALSE(taken);
    EXPECT_EQ(count_of("dump_end outcome=done", dumped()), 1U);
  });
}

TEST_F(signal_dump, works_where_proc_is_of_another_pid_namespace) {
  auto child = in_pid_namespace(proc_of::parent, [&](line& talk) {
    talk.send(true);
    if (!dump_on_signal(SIGUSR2, folder_)) return 1;
    local_fixture f;
    f.touch(0x10000, 0x11000);
    ::raise(SIGUSR2);
    return count_of("\nentry 0x10000-0x11000 ", dumped()) == 1 ? 0 : 2;
  });
  if (!child.talk().receive<bool>()) GTEST_SKIP() << "no PID namespace may be made here";
  EXPECT_EQ(child.reap(), 0);
}

// Its /proc/PID/mem belongs to root. Programs with capabilities, for example to lock memory, are such processes.
TEST_F(signal_dump, works_in_a_process_that_may_not_be_dumped) {
  run_in_child([&] {
    std::filesystem::permissions(folder_, std::filesystem::perms::all);
    ASSERT_TRUE(dump_on_signal(SIGUSR2, folder_));
    local_fixture f;
    f.touch(0x10000, 0x11000);
    if (::geteuid() == 0 && !become_nobody()) return;  // root may read it
    ASSERT_EQ(::prctl(PR_SET_DUMPABLE, 0), 0);
    ::raise(SIGUSR2);
    EXPECT_EQ(count_of("\nentry 0x10000-0x11000 ", dumped()), 1U) << dumped();
  });
}

TEST_F(signal_dump, c_programs_ask_for_it_too) {
  run_in_child([&] {
    ASSERT_EQ(pinfold_dump_on_signal(SIGUSR2, folder_.c_str(), 0), PINFOLD_OK);
    local_fixture f({.name = "of C"});
    f.touch(0x10000, 0x11000);
    ::raise(SIGUSR2);
    EXPECT_EQ(count_of("\nentry 0x10000-0x11000 ", dumped()), 1U) << dumped();
    EXPECT_EQ(pinfold_dump_on_signal(SIGUSR1, nullptr, 2), PINFOLD_E_INVALID_ARGUMENT);
    EXPECT_EQ(pinfold_dump_on_signal(SIGKILL, nullptr, 0), PINFOLD_E_INVALID_ARGUMENT);
    EXPECT_EQ(pinfold_last_error()->native, EINVAL);
    std::signal(SIGUSR1, count_call);
    EXPECT_EQ(pinfold_dump_on_signal(SIGUSR1, nullptr, 0), PINFOLD_E_IN_USE_CONFLICT);
    EXPECT_EQ(pinfold_dump_on_signal(SIGUSR1, folder_.c_str(), PINFOLD_DUMP_CHAIN), PINFOLD_OK);
    ::raise(SIGUSR1);
    EXPECT_EQ(earlier_calls, 1);
    EXPECT_EQ(count_of("dump_end outcome=done", dumped()), 2U);
  });
}

TEST_F(signal_dump, many_entries_are_all_written) {
  run_in_child([&] {
    ASSERT_TRUE(dump_on_signal(SIGUSR2, folder_));
    local_fixture f({.name = "many"});
    for (std::uintptr_t i = 1; i <= 2000; ++i) f.touch(i * 0x10000, i * 0x10000 + 0x1000);
    ::raise(SIGUSR2);
    EXPECT_EQ(count_of("\nentry 0x", dumped()), 2000U);
  });
}

TEST_F(signal_dump, works_while_the_interrupted_thread_holds_a_mutex) {
  run_in_child([&] {
    ASSERT_TRUE(dump_on_signal(SIGUSR2, folder_));
    local_fixture f({.name = "hung", .shards = 1});
    f.touch(0x10000, 0x11000);
    auto* const held =
        static_cast<os::mutex*>(const_cast<void*>(debugging::pinfold_debug_v1.caches->load()->about.shards[0].mutex));
    held->lock();
    ::raise(SIGUSR2);
    held->unlock();
    EXPECT_EQ(count_of(" locked_shards=1\n", dumped()), 1U) << dumped();
    EXPECT_EQ(count_of("\nentry 0x10000", dumped()), 1U);
  });
}

void count_information(int, siginfo_t* about, void*) { earlier_calls += about->si_value.sival_int; }

TEST_F(signal_dump, a_handler_is_refused_or_called_afterwards) {
  run_in_child([&] {
    std::signal(SIGUSR2, count_call);
    const auto refused = dump_on_signal(SIGUSR2, folder_);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, errc::in_use_conflict);
    ::raise(SIGUSR2);
    EXPECT_EQ(earlier_calls, 1);
    EXPECT_EQ(dumped(), "");
    ASSERT_TRUE(dump_on_signal(SIGUSR2, folder_, earlier_handler::chain));
    ::raise(SIGUSR2);
    EXPECT_EQ(earlier_calls, 2);
    EXPECT_EQ(count_of("dump_end", dumped()), 1U);
    struct sigaction with_information{};
    with_information.sa_sigaction = count_information;
    with_information.sa_flags = SA_SIGINFO;
    ::sigaction(SIGUSR1, &with_information, nullptr);
    ASSERT_TRUE(dump_on_signal(SIGUSR1, folder_, earlier_handler::chain));
    ::sigqueue(getpid(), SIGUSR1, {.sival_int = 40});
    EXPECT_EQ(earlier_calls, 42);
  });
}

TEST_F(signal_dump, a_handler_that_replaced_it_is_never_chained) {
  run_in_child([&] {
    ASSERT_TRUE(dump_on_signal(SIGUSR2, folder_));
    std::signal(SIGUSR2, count_call);
    EXPECT_EQ(dump_on_signal(SIGUSR2, folder_, earlier_handler::chain).error().code, errc::in_use_conflict);
  });
}

TEST_F(signal_dump, a_second_call_changes_the_directory) {
  run_in_child([&] {
    ASSERT_TRUE(dump_on_signal(SIGUSR2, "/nonexistent"));
    ASSERT_TRUE(dump_on_signal(SIGUSR2, folder_));
    ::raise(SIGUSR2);
    EXPECT_EQ(count_of("dump_end outcome=done", dumped()), 1U);
  });
}

TEST_F(signal_dump, a_relative_directory_is_that_of_the_call) {
  run_in_child([&] {
    std::filesystem::current_path(std::filesystem::path(folder_).parent_path());
    ASSERT_TRUE(dump_on_signal(SIGUSR2, std::filesystem::path(folder_).filename().string()));
    std::filesystem::current_path("/");
    ::raise(SIGUSR2);
    EXPECT_EQ(count_of("dump_end outcome=done", dumped()), 1U);
    EXPECT_EQ(dump_on_signal(SIGUSR2, std::string(4000, 'd')).error().code, errc::invalid_argument);
  });
}

TEST_F(signal_dump, leaves_errno_and_a_link_alone) {
  run_in_child([&] {
    ASSERT_TRUE(dump_on_signal(SIGUSR2, folder_));
    std::filesystem::create_symlink(folder_ + "/precious", file());
    errno = 4242;
    ::raise(SIGUSR2);  // to standard error, as the file cannot be opened
    EXPECT_EQ(errno, 4242);
    EXPECT_FALSE(std::filesystem::exists(folder_ + "/precious"));
  });
}

TEST_F(signal_dump, waits_for_no_pipe_and_writes_to_no_file_of_others) {
  run_in_child([&] {
    ::alarm(100);
    ASSERT_TRUE(dump_on_signal(SIGUSR2, folder_));
    ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);
    ::testing::internal::CaptureStderr();
    ::raise(SIGUSR2);  // no reader
    EXPECT_TRUE(::testing::internal::GetCapturedStderr().starts_with(
        "pinfold: " + file() + ": cannot write the file: No such device or address\ndump process="));
    const int reader = ::open(file().c_str(), O_RDWR | O_NONBLOCK);
    ::raise(SIGUSR2);
    std::array<char, 8> read{};
    EXPECT_EQ(::read(reader, read.data(), read.size()), -1);
    ::unlink(file().c_str());
    const auto other = folder_ + "/other";
    std::ofstream(other) << "text";
    ASSERT_EQ(::link(other.c_str(), file().c_str()), 0);
    ::testing::internal::CaptureStderr();
    ::raise(SIGUSR2);
    EXPECT_TRUE(
        ::testing::internal::GetCapturedStderr().starts_with("pinfold: " + file() + ": cannot write the file: it "));
    EXPECT_EQ(contents(other), "text");
    ::unlink(file().c_str());
    std::ofstream(file()) << "text";
    if (::chown(file().c_str(), ::geteuid() + 1, static_cast<gid_t>(-1)) != 0) return;  // only root can
    ::raise(SIGUSR2);
    EXPECT_EQ(dumped(), "text");
  });
}

// As small as SIGSTKSZ was for long, and is in many programs: 8 KiB, of which the kernel's frame takes 3.
TEST_F(signal_dump, runs_on_a_small_alternate_stack) {
  if (sanitized) GTEST_SKIP() << "its code needs more of the stack";
  for (const bool writable : {true, false}) {
    run_in_child([&] {
      constexpr char untouched = 0x5a;
      const auto size = static_cast<std::size_t>(::sysconf(_SC_MINSIGSTKSZ)) + 5120;
      std::vector<char> below_and_stack(65536 + size, untouched);
      char* const stack = below_and_stack.data() + 65536;
      const stack_t other{stack, 0, size};
      ASSERT_EQ(::sigaltstack(&other, nullptr), 0);
      ASSERT_TRUE(dump_on_signal(SIGUSR2, writable ? folder_ : folder_ + "/none"));
      local_fixture f({.name = "alternate"});
      f.touch(0x10000, 0x11000);
      ::raise(SIGUSR2);
      const auto is_untouched = [](char one) { return one == untouched; };
      EXPECT_TRUE(std::all_of(below_and_stack.data(), stack, is_untouched)) << "more than the stack was used";
      EXPECT_FALSE(std::all_of(stack, stack + size, is_untouched)) << "the stack was used";
      if (writable) {
        EXPECT_EQ(count_of("\nentry 0x10000", dumped()), 1U);
      }
    });
  }
}

TEST_F(signal_dump, a_forked_child_dumps_into_its_own_file) {
  run_in_child([&] {
    ASSERT_TRUE(dump_on_signal(SIGUSR2, folder_));
    local_fixture f({.name = "parent's"});
    f.touch(0x10000, 0x11000);
    child_process child([&](line&) {
      ::raise(SIGUSR2);
      return 0;
    });
    const auto text = file(child.pid());
    EXPECT_EQ(child.reap(), 0);
    EXPECT_EQ(count_of(" of_parent=1 ", contents(text)), 1U) << contents(text);
    EXPECT_EQ(dumped(), "");
  });
}

TEST_F(signal_dump, signals_that_end_the_process_still_do) {
  for (const int fatal : {SIGABRT, SIGSEGV}) {
    child_process child([&](line&) {
      std::signal(fatal, SIG_DFL);  // a sanitizer's runtime has a handler
      static_cast<void>(dump_on_signal(fatal, folder_));
      ::raise(fatal);
      return 0;
    });
    const auto path = file(child.pid());
    EXPECT_EQ(child.reap(), -fatal);
    EXPECT_EQ(count_of("dump_end outcome=done", contents(path)), 1U);
  }
}

TEST_F(signal_dump, a_fault_ends_the_process_though_it_is_ignored_or_has_a_handler_for_one) {
  for (const bool ignored : {true, false}) {
    child_process child([&](line&) {
      ::alarm(100);
      struct sigaction earlier{};
      earlier.sa_handler = ignored ? SIG_IGN : count_call;
      earlier.sa_flags = ignored ? 0 : static_cast<int>(SA_RESETHAND);
      ::sigaction(SIGSEGV, &earlier, nullptr);
      if (!dump_on_signal(SIGSEGV, folder_, earlier_handler::chain)) return 1;
      auto* const none = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      *static_cast<volatile char*>(none) = 1;
      return 0;
    });
    const auto path = file(child.pid());
    EXPECT_EQ(child.reap(), -SIGSEGV);
    EXPECT_EQ(count_of("dump_end outcome=done", contents(path)), ignored ? 1U : 2U);
  }
}

TEST_F(signal_dump, refuses_what_makes_no_sense) {
  for (const int wrong : {0, -1, 65, 1000, SIGKILL, SIGSTOP}) {
    const auto refused = dump_on_signal(wrong);
    ASSERT_FALSE(refused) << wrong;
    EXPECT_EQ(refused.error().code, errc::invalid_argument) << wrong;
  }
  EXPECT_EQ(dump_on_signal(SIGUSR2, std::string(4001, 'x')).error().code, errc::invalid_argument);
}

// In a program of its own: the process of all tests may have had its first cache.
TEST_F(signal_dump, the_environment_names_signal_and_directory) {
  constexpr const char* again = "PINFOLD_TEST_FIRST_CACHE";
  if (::getenv(again) == nullptr) {
    child_process fresh([](line&) {
      ::setenv(again, "", 1);
      ::setenv("PINFOLD_DUMP_SIGNAL", "SIGUSR2", 1);
      ::setenv("PINFOLD_DUMP_DIR", folder_of(::getpid()).c_str(), 1);
      ::execl("/proc/self/exe", "again", "--gtest_filter=signal_dump.the_environment_names_signal_and_directory",
              nullptr);
      return 127;
    });
    EXPECT_EQ(fresh.reap(), 0);
    return;
  }
  local_fixture f({.name = "environment"});
  ::raise(SIGUSR2);
  EXPECT_EQ(count_of("\ncache name=\"environment\"", dumped()), 1U);
}

TEST_F(signal_dump, the_environment_may_be_wrong) {
  for (const auto* const wrong : {"KILL", "USR3", "0", "9", "USR2,", "USR2,twice", " USR2"}) {
    run_in_child([&] {
      ::setenv("PINFOLD_DUMP_SIGNAL", wrong, 1);
      const auto refused = dump_on_signal_by_environment();
      ASSERT_FALSE(refused) << wrong;
      EXPECT_EQ(refused.error().code, errc::invalid_argument) << wrong;
    });
  }
  run_in_child([&] {
    std::signal(SIGUSR2, count_call);
    ::setenv("PINFOLD_DUMP_SIGNAL", "USR2", 1);
    EXPECT_EQ(dump_on_signal_by_environment().error().code, errc::in_use_conflict);
    ::setenv("PINFOLD_DUMP_SIGNAL", "USR2,chain", 1);
    EXPECT_TRUE(dump_on_signal_by_environment());
  });
}

TEST_F(signal_dump, signals_in_busy_threads_neither_hang_nor_break_the_cache) {
  run_in_child([&] {
    ASSERT_TRUE(dump_on_signal(SIGUSR2, folder_));
    local_fixture f({.name = "busy", .max_count = 64});
    std::atomic<bool> stop{false};
    std::array<std::thread, 3> threads;
    for (auto& one : threads)
      one = std::thread([&] {
        for (std::uintptr_t n = 0; !stop; ++n) f.touch((n % 101 + 1) * 0x10000, (n % 101 + 1) * 0x10000 + 0x1000);
      });
    for (int i = 0; i < 100; ++i) ::pthread_kill(threads[static_cast<unsigned>(i) % 3].native_handle(), SIGUSR2);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    stop = true;
    for (auto& one : threads) one.join();
    f.expect_sound();
    EXPECT_GT(count_of("dump_end outcome=", dumped()), 0U);
    EXPECT_EQ(count_of("dump process=", dumped()), count_of("dump_end outcome=", dumped())) << "dumps do not mix";
  });
}

}  // namespace
}  // namespace pinfold::testing::dump_on_signal_test
