// SPDX-License-Identifier: BSD-3-Clause
// A recorded trace can be read back, even when other processes write to the same file.
#include "support/fixtures/local_fixture.hpp"
#include "support/host/process_limits.hpp"
#include "support/processes/pid_namespace.hpp"
#include "support/processes/process_1.hpp"

#include <pinfold/trace_file.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace pinfold::testing::trace_file_test {
namespace {

class trace_files : public ::testing::Test {
 protected:
  trace_files() { std::remove(path_.c_str()); }
  ~trace_files() override {
    ::unsetenv("PINFOLD_TRACE");
    std::remove(path_.c_str());
  }

  void use_environment() const { ::setenv("PINFOLD_TRACE", path_.c_str(), 1); }

  [[nodiscard]] recorded_trace recorded() const {
    auto trace = read_trace(path_);
    EXPECT_TRUE(trace) << trace.error().where << ": " << describe(trace.error().cause);
    return trace ? *std::move(trace) : recorded_trace{};
  }
  void expect_recorded(std::size_t caches, std::size_t requests) const {
    const auto trace = recorded();
    EXPECT_EQ(trace.caches.size(), caches);
    EXPECT_EQ(trace.requests.size(), requests);
  }
  [[nodiscard]] std::string text() const {
    std::stringstream all;
    all << std::ifstream(path_).rdbuf();
    return all.str();
  }

  /// Runs `work` in a child of fork and returns its wait status. The child runs no handlers at exit, unless `work`
  /// exits by itself: leak checkers report what the test's frames hold.
  template <class Work>
  static int in_child(Work&& work) {
    const auto child = ::fork();
    if (child == 0) {
      work();
      ::_exit(0);
    }
    int status = -1;
    ::waitpid(child, &status, 0);
    return status;
  }

  const std::string path_ = ::testing::TempDir() + "pinfold_trace_" + std::to_string(::getpid());
};

cache_options recording(trace_file into, const std::string& name) {
  cache_options options;
  options.name = name;
  options.trace_requests = true;
  options.sink = into.sink(name);
  return options;
}

TEST_F(trace_files, recorded_requests_are_read_back) {
  auto file = trace_file::open(path_);
  ASSERT_TRUE(file) << describe(file.error());
  local_fixture first(recording(*file, "first one"));
  local_fixture second(recording(*file, "second\none"));
  first.device->limits.granularity = 0x1000;
  first.touch(0x10010, 0x10020);
  first.touch(0x10100, 0x10200);
  second.touch(0xfffffffff000, 0xfffffffff001);
  ASSERT_TRUE(file->flush());
  const auto trace = recorded();
  ASSERT_EQ(trace.caches.size(), 2U);
  EXPECT_TRUE(trace.caches[0].ends_with(" first one")) << trace.caches[0];
  EXPECT_TRUE(trace.caches[1].ends_with(" second?one")) << trace.caches[1];
  ASSERT_EQ(trace.requests.size(), 3U);
  EXPECT_EQ(trace.requests[0].cache, 0U);
  EXPECT_EQ(trace.requests[0].asked, (range{0x10010, 0x10020}));
  EXPECT_EQ(trace.requests[0].registered, (range{0x10000, 0x11000}));
  EXPECT_FALSE(trace.requests[0].hit);
  EXPECT_GT(trace.requests[0].opened_for.count(), 0);
  EXPECT_EQ(trace.requests[1].asked, (range{0x10100, 0x10200}));
  EXPECT_TRUE(trace.requests[1].hit);
  EXPECT_EQ(trace.requests[1].opened_for.count(), 0);
  EXPECT_EQ(trace.requests[2].cache, 1U);
  EXPECT_EQ(trace.requests[2].asked, (range{0xfffffffff000, 0xfffffffff001}));
}

TEST_F(trace_files, last_sink_flushes_the_buffer) {
  {
    local_fixture f(recording(*trace_file::open(path_), "c"));
    for (std::uintptr_t i = 0; i < 5000; ++i) f.touch(i % 64 * 0x1000, i % 64 * 0x1000 + 1);
  }
  EXPECT_EQ(recorded().requests.size(), 5000U);
}

TEST_F(trace_files, second_run_appends_to_the_file) {
  for (int run = 0; run < 2; ++run) {
    local_fixture f(recording(*trace_file::open(path_), "c"));
    f.touch(0x1000, 0x2000);
  }
  expect_recorded(2, 2);
}

TEST_F(trace_files, threads_caches_and_processes_keep_their_lines_whole) {
  use_environment();
  constexpr std::uintptr_t each = 3000;
  const auto work = [] {
    local_fixture f;
    std::vector<std::thread> threads;
    for (std::uintptr_t own = 0; own < 2; ++own)
      threads.emplace_back([&f, own] {
        for (std::uintptr_t i = 0; i < each; ++i) f.touch(0x1000 * (i % 7), 0x1000 * (i % 7) + own + 1);
      });
    for (auto& one : threads) one.join();
  };
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    children.push_back(::fork());
    if (children.back() != 0) continue;
    work();
    ::_exit(0);
  }
  work();
  for (const auto child : children) ::waitpid(child, nullptr, 0);
  const auto trace = recorded();
  EXPECT_EQ(trace.caches.size(), 4U);
  std::vector<std::size_t> counts(trace.caches.size());
  for (const auto& one : trace.requests) ++counts[one.cache];
  for (const auto count : counts) EXPECT_EQ(count, 2 * each);
}

// The parent's cache has lines in its buffer when it forks: they must not be written twice.
TEST_F(trace_files, a_child_of_fork_does_not_repeat_its_parents_lines) {
  use_environment();
  {
    local_fixture f;
    f.touch(0x1000, 0x2000);
    EXPECT_EQ(in_child([] {
                local_fixture own;
                own.touch(0x5000, 0x6000);
              }),
              0);
    f.touch(0x1000, 0x2000);
  }
  expect_recorded(2, 3);
}

TEST_F(trace_files, a_child_with_the_pid_of_its_parent_does_not_repeat_its_lines_at_exit) {
  use_environment();
  const auto status = in_process_1([] {
    local_fixture f;
    f.touch(0x1000, 0x2000);
    const int ended = in_another_process_1([]() -> int { std::exit(0); });
    f.touch(0x1000, 0x2000);
    return ended;
  });
  if (!status) GTEST_SKIP() << "no PID namespace may be made here";
  EXPECT_EQ(*status, 0);
  expect_recorded(1, 2);
}

TEST_F(trace_files, a_cache_that_is_never_destroyed_is_written_at_exit) {
  use_environment();
  static_cast<void>(in_child([] {
    auto* leaked = new local_fixture<>;
    leaked->touch(0x1000, 0x2000);
    std::exit(0);
  }));
  EXPECT_EQ(recorded().requests.size(), 1U);
}

TEST_F(trace_files, a_killed_process_leaves_whole_lines) {
  use_environment();
  const int status = in_child([] {
    local_fixture f;
    for (std::uintptr_t i = 0; i < 5000; ++i) f.touch(i % 64 * 0x1000, i % 64 * 0x1000 + 1);
    ::raise(SIGKILL);
  });
  EXPECT_TRUE(WIFSIGNALED(status));
  const auto trace = recorded();
  EXPECT_EQ(trace.caches.size(), 1U);
  EXPECT_GT(trace.requests.size(), 1000U);
  EXPECT_LE(trace.requests.size(), 5000U);
}

// As after SIGKILL within a write: the kernel ends it between two pages.
TEST_F(trace_files, half_a_line_of_a_killed_process_ends_where_another_process_appends) {
  for (const char* half : {"1.1 0 0x10", "1.1 0 0x1000 64 0x1000 4096 h", "cache", "# failed 1.1 0 0x", "1", ""}) {
    std::ofstream(path_) << "# pinfold trace 1\ncache 1.1 killed\n1.1 0 0x1000 64 0x1000 4096 hit\n" << half;
    expect_recorded(1, 1);
    for (int run = 0; run < 2; ++run) {
      local_fixture f(recording(*trace_file::open(path_), "c"));
      f.touch(0x1000, 0x2000);
    }
    expect_recorded(3, 3);
  }
}

TEST_F(trace_files, tracing_by_environment_keeps_the_applications_sink) {
  use_environment();
  std::vector<event_kind> told;
  cache_options options{.max_count = 1, .statistics_at_exit = true};
  options.sink = [&](const event& what) { told.push_back(what.kind); };
  {
    local_fixture f(options);
    f.touch(0x1000, 0x2000);
    f.touch(0x3000, 0x4000);
  }
  EXPECT_EQ(told, (std::vector{event_kind::evicted, event_kind::statistics}));
  EXPECT_EQ(recorded().requests.size(), 2U);
}

TEST_F(trace_files, tracing_by_environment_records_the_budget) {
  use_environment();
  {
    local_fixture f({.max_count = 7});
  }
  EXPECT_NE(text().find(" unlimited 7\n"), std::string::npos) << text();
  expect_recorded(1, 0);
}

TEST_F(trace_files, acquires_that_fail_are_recorded_with_their_reason) {
  {
    auto options = recording(*trace_file::open(path_), "c");
    options.max_bytes = 0x1000;
    local_fixture f(options);
    EXPECT_FALSE(f.acquire(0x10000, 0x12000));
    f.touch(0x10000, 0x11000);
  }
  EXPECT_NE(text().find("\n# failed "), std::string::npos) << text();
  EXPECT_NE(text().find(" 0 0x10000 8192 larger_than_budget\n"), std::string::npos) << text();
  expect_recorded(1, 1);
}

TEST_F(trace_files, without_a_sink_the_statistics_still_go_to_stderr) {
  use_environment();
  ::testing::internal::CaptureStderr();
  {
    local_fixture f({.name = "mine", .statistics_at_exit = true});
  }
  EXPECT_TRUE(::testing::internal::GetCapturedStderr().starts_with("mine: hits=0"));
}

TEST_F(trace_files, unwritable_file_is_reported_once_and_the_caches_work) {
  ::setenv("PINFOLD_TRACE", "/nonexistent/trace", 1);
  ::testing::internal::CaptureStderr();
  local_fixture f, other;
  const auto complaint = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(complaint.find("PINFOLD_TRACE=/nonexistent/trace: "), std::string::npos) << complaint;
  EXPECT_NE(complaint.find("ENOENT"), std::string::npos) << complaint;
  EXPECT_EQ(std::ranges::count(complaint, '\n'), 1) << complaint;
  f.touch(0x1000, 0x2000);
}

TEST_F(trace_files, files_that_are_no_trace_are_not_appended_to) {
  std::ofstream(path_) << "a letter\n";
  const auto file = trace_file::open(path_);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error(), errc::invalid_argument);
  EXPECT_EQ(text(), "a letter\n");
  EXPECT_FALSE(trace_file::open("/dev/null"));
  EXPECT_FALSE(trace_file::open(::testing::TempDir()));
}

TEST_F(trace_files, that_a_limit_cuts_off_end_with_a_whole_line) {
  const auto record = [this](rlim_t most) {
    return in_child([&] {
      auto file = trace_file::open(path_);
      if (!file) ::_exit(0);
      const lowered_limit low(RLIMIT_FSIZE, most);
      local_fixture f(recording(*file, "c"));
      for (std::uintptr_t i = 0; i < 200; ++i) f.touch(i * 0x1000, i * 0x1000 + 1);
      ::_exit(file->flush() ? 1 : 0);
    });
  };
  ASSERT_EQ(record(4096), 0);
  const auto first = recorded().requests.size();
  EXPECT_GT(first, 10U);
  ASSERT_EQ(record(8192), 0) << "another process with room appends";
  EXPECT_GT(recorded().requests.size(), first);
}

TEST_F(trace_files, that_could_not_begin_can_be_written_later) {
  EXPECT_EQ(in_child([this] {
              const lowered_limit low(RLIMIT_FSIZE, 5);
              if (trace_file::open(path_)) ::_exit(1);
            }),
            0);
  EXPECT_EQ(text(), "");
  EXPECT_TRUE(trace_file::open(path_));
}

TEST_F(trace_files, child_of_fork_waits_for_no_thread_of_its_parent) {
  auto file = *trace_file::open(path_);
  const lowered_limit low(RLIMIT_FSIZE, 1 << 20);
  local_fixture f(recording(file, "c"));
  std::atomic<bool> stops{false};
  std::thread writes([&] {
    while (!stops.load()) static_cast<void>(file.flush()), f.touch(0x1000, 0x2000);
  });
  int failed = 0;
  for (int i = 0; i < 200 && failed == 0; ++i)
    failed = in_child([&] {
      ::alarm(60);
      static_cast<void>(file.flush());
      static_cast<void>(file.sink("own"));
    });
  stops = true;
  writes.join();
  EXPECT_EQ(failed, 0);
}

TEST_F(trace_files, a_limit_on_files_ends_the_recording_with_an_error_and_not_the_process) {
  EXPECT_EQ(in_child([this] {
              auto file = *trace_file::open(path_);
              const lowered_limit low(RLIMIT_FSIZE, 4096);
              local_fixture f(recording(file, "c"));
              for (std::uintptr_t i = 0; i < 200; ++i) f.touch(i * 0x1000, i * 0x1000 + 1);
              const auto done = file.flush();
              if (done || done.error().native != EFBIG) ::_exit(1);
              if (f.cache.statistics().sink_failures != 0) ::_exit(2);
            }),
            0);
}

TEST_F(trace_files, closed_descriptor_ends_the_recording_and_leaves_the_programs_files_alone) {
  EXPECT_EQ(in_child([this] {
              int own = -1;
              {
                auto file = *trace_file::open(path_);
                local_fixture f(recording(file, "c"));
                ::closefrom(3);
                own = ::memfd_create("pinfold-test", 0);
                for (int number = own + 1; number < 64; ++number) ::dup2(own, number);
                f.touch(0x1000, 0x2000);
                const auto done = file.flush();
                if (done || done.error().native != EBADF) ::_exit(1);
              }
              struct stat seen{};
              for (int number = own; number < 64; ++number)
                if (::fstat(number, &seen) != 0 || seen.st_size != 0) ::_exit(2);
            }),
            0);
}

TEST_F(trace_files, programs_without_standard_output_do_not_print_into_the_trace) {
  EXPECT_EQ(in_child([this] {
              ::close(STDOUT_FILENO);
              auto file = *trace_file::open(path_);
              if (::write(STDOUT_FILENO, "printed\n", 8) >= 0) ::_exit(1);
            }),
            0);
  EXPECT_EQ(text(), "# pinfold trace 1\n");
}

TEST_F(trace_files, containers_that_write_to_one_file_have_caches_of_their_own) {
  const auto contained = [this](line& talk) {
    {
      local_fixture f(recording(*trace_file::open(path_), "contained"));
      talk.send(static_cast<int>(::getpid()));
      static_cast<void>(talk.receive<int>());
      f.touch(0x1000, 0x2000);
    }
    talk.send(0);
    return 0;
  };
  auto first = in_pid_namespace(proc_of::itself, contained);
  auto second = in_pid_namespace(proc_of::itself, contained);
  for (auto* one : {&first, &second})
    if (one->talk().receive<int>() != 1) GTEST_SKIP() << "no PID namespace can be made here";
  for (auto* one : {&first, &second}) {
    EXPECT_EQ(one->ask<int>(1), 0);
    EXPECT_EQ(one->reap(), 0);
  }
  const auto trace = recorded();
  ASSERT_EQ(trace.caches.size(), 2U);
  EXPECT_TRUE(trace.caches[0].starts_with("1.") && trace.caches[1].starts_with("1.")) << trace.caches[0];
  EXPECT_NE(trace.caches[0], trace.caches[1]);
  ASSERT_EQ(trace.requests.size(), 2U);
  EXPECT_NE(trace.requests[0].cache, trace.requests[1].cache);
}

constexpr const char* good =
    "# pinfold trace 1\n"
    "cache 1.1 name of it\n"
    "1.1 7 0x1000 64 0x1000 4096 13400\n"
    "\n"
    "# a comment\n"
    "1.1 7 0x1fff 1 0x1000 4096 hit\n";

TEST(trace_reader, reads_the_documented_format) {
  const auto trace = parse_trace(good, "here");
  ASSERT_TRUE(trace) << trace.error().where;
  EXPECT_EQ(trace->caches, std::vector<std::string>{"1.1 name of it"});
  ASSERT_EQ(trace->requests.size(), 2U);
  EXPECT_EQ(trace->requests[0].peer, peer_id{7});
  EXPECT_EQ(trace->requests[0].opened_for.count(), 13400);
  EXPECT_EQ(trace->requests[1].asked, (range{0x1fff, 0x2000}));
  EXPECT_TRUE(trace->requests[1].hit);
}

TEST(trace_reader, repeated_cache_number_is_another_cache) {
  const auto trace =
      parse_trace(std::string(good) + "# pinfold trace 1\ncache 1.1 later\n1.1 0 0x0 1 0x0 1 5\n", "here");
  ASSERT_TRUE(trace) << trace.error().where;
  EXPECT_EQ(trace->caches.size(), 2U);
  EXPECT_EQ(trace->requests.back().cache, 1U);
}

TEST(trace_reader, error_names_the_malformed_line) {
  for (const char* bad :
       {"1.1 7 0x1000 64 0x1000 4096", "1.1 7 0x1000 64 0x1000 4096 hit more", "1.1 7 0x1000 64 0x1000 4096 ",
        "1.1  7 0x1000 64 0x1000 4096 hit", "2.1 7 0x1000 64 0x1000 4096 hit", "1.1 x 0x1000 64 0x1000 4096 hit",
        "1.1 7 1000 64 0x1000 4096 hit", "1.1 7 0x1000 0 0x1000 4096 hit", "1.1 7 0x1000 -1 0x1000 4096 hit",
        "1.1 7 0xffffffffffffffff 64 0xffffffffffffffff 64 hit", "1.1 7 0x1000 64 0x2000 4096 hit",
        "1.1 7 0x1000 64 0x1000 4096 miss", "1.1 7 0x1000 64 0x1000 4096 99999999999999999999",
        "1.1 7 0x1000 64 0x1000 4096 -5", "cache ", "nonsense", "# pinfold trace 2", "1.1 7 0x1000 64 0x10"}) {
    for (const char* rest : {"\n", "\n1.1 7 0x1000 64 0x1000 4096 hit\n", "\n# a comment\n\n"}) {
      const auto trace = parse_trace(std::string(good) + bad + rest, "some.trace");
      ASSERT_FALSE(trace) << bad << rest;
      EXPECT_EQ(trace.error().where, "some.trace:7") << bad << rest;
      EXPECT_EQ(trace.error().cause, errc::invalid_argument) << bad << rest;
    }
  }
}

TEST_F(trace_files, lines_that_may_be_cut_off_are_skipped_and_counted) {
  std::ofstream(path_) << good << "1.1 7 0x10\n\n1.1 7 0x1000 64 0x1000 4096 hit\nnonsense\n\n\n1.1 7 0x1000 64";
  std::size_t cut = 0;
  std::size_t requests = 0;
  const auto visited = visit_trace(
      path_, [&](const auto& /*request*/, const auto& /*caches*/) { ++requests; },
      [&](std::string_view comment, const auto& /*caches*/) { cut += comment == "cut" ? 1 : 0; });
  ASSERT_TRUE(visited) << visited.error().where;
  EXPECT_EQ(cut, 3U);
  EXPECT_EQ(requests, 3U);
  expect_recorded(1, 3);
  for (const char* other : {"\n# pinfold trace 2\n\n", "\n# pinfold trace 2"}) {
    EXPECT_FALSE(parse_trace(std::string(good) + other, "t")) << other;
    EXPECT_FALSE(parse_trace(other, "t")) << other;
  }
}

TEST_F(trace_files, lines_that_are_too_long_are_refused) {
  const auto with_line = [&](std::size_t characters) {
    std::ofstream(path_) << good << "#" << std::string(characters - 1, ' ');
    return read_trace(path_);
  };
  EXPECT_TRUE(with_line(65536));
  const auto refused = with_line(65537);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().where, path_ + ":7");
  std::ofstream(path_) << good << "#" << std::string(65535, ' ') << "\n" << "1.1 7 0x1000 64 0x1000 4096 hit";
  EXPECT_EQ(recorded().requests.size(), 3U);
}

TEST_F(trace_files, visitor_sees_comments_after_the_caches_that_they_name) {
  std::ofstream(path_) << good << "# failed 1.1 7 0x1000 64 over_budget\n";
  std::vector<std::string> comments;
  std::size_t requests = 0;
  const auto visited = visit_trace(
      path_, [&](const auto& /*request*/, const auto& /*caches*/) { ++requests; },
      [&](std::string_view comment, const std::vector<std::string>& caches) {
        comments.push_back(std::to_string(caches.size()) + " " + std::string(comment));
      });
  ASSERT_TRUE(visited);
  EXPECT_EQ(requests, 2U);
  EXPECT_EQ(comments,
            (std::vector<std::string>{"0 pinfold trace 1", "1 a comment", "1 failed 1.1 7 0x1000 64 over_budget"}));
}

TEST_F(trace_files, long_names_of_caches_are_cut) {
  {
    local_fixture f(recording(*trace_file::open(path_), std::string(100000, 'n')));
    f.touch(0x1000, 0x2000);
  }
  expect_recorded(1, 1);
}

TEST_F(trace_files, visitor_sees_the_requests_before_an_error) {
  std::ofstream(path_) << good << "nonsense\n";
  std::vector<traced_request> seen;
  std::vector<std::string> names;
  const auto visited = visit_trace(path_, [&](const traced_request& one, const std::vector<std::string>& caches) {
    seen.push_back(one);
    names = caches;
  });
  ASSERT_FALSE(visited);
  EXPECT_EQ(visited.error().where, path_ + ":7");
  const auto whole = parse_trace(good, "here");
  ASSERT_TRUE(whole) << whole.error().where;
  EXPECT_EQ(names, whole->caches);
  ASSERT_EQ(seen.size(), whole->requests.size());
  for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i].asked, whole->requests[i].asked);
}

TEST(trace_reader, refuses_files_that_are_no_trace) {
  EXPECT_EQ(parse_trace("", "t").error().where, "t");
  EXPECT_EQ(parse_trace("hello\n", "t").error().where, "t:1");
  EXPECT_EQ(parse_trace("\n# pinfold trace 1\n", "t").error().where, "t:1");
  const auto none = read_trace("/nonexistent/trace");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().where, "/nonexistent/trace");
  EXPECT_EQ(none.error().cause.native, ENOENT);
  EXPECT_FALSE(read_trace(::testing::TempDir()));
}

}  // namespace
}  // namespace pinfold::testing::trace_file_test
