// SPDX-License-Identifier: BSD-3-Clause
#include <pinfold/settings.hpp>

#include "support/host/privileges.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace settings_test {
namespace {

using pinfold::cache_options;
using pinfold::errc;
using std::chrono::milliseconds;

// Returns options that all differ from their defaults.
cache_options unusual() {
  cache_options options;
  options.retain = false;
  options.max_bytes = std::size_t{3} << 20;
  options.max_count = 17;
  options.monitor = pinfold::monitor_choice::manual | pinfold::monitor_choice::userfaultfd;
  options.strict = true;
  options.program_data = true;
  options.audit_one_in = 100;
  options.full = pinfold::when_full::bypass;
  options.closes = pinfold::close_policy::deferred;
  options.reaper = true;
  options.idle_timeout = milliseconds(15);
  options.full_timeout = milliseconds(11);
  options.conflict_timeout = milliseconds(12);
  options.wait_timeout = milliseconds(13);
  options.drain_timeout = milliseconds(14);
  options.entry_statistics = true;
  options.statistics_at_exit = true;
  return options;
}

void expect_same(const cache_options& a, const cache_options& b) {
  EXPECT_EQ(a.retain, b.retain);
  EXPECT_EQ(a.max_bytes, b.max_bytes);
  EXPECT_EQ(a.max_count, b.max_count);
  EXPECT_EQ(a.monitor, b.monitor);
  EXPECT_EQ(a.strict, b.strict);
  EXPECT_EQ(a.program_data, b.program_data);
  EXPECT_EQ(a.audit_one_in, b.audit_one_in);
  EXPECT_EQ(a.full, b.full);
  EXPECT_EQ(a.closes, b.closes);
  EXPECT_EQ(a.reaper, b.reaper);
  EXPECT_EQ(a.idle_timeout, b.idle_timeout);
  EXPECT_EQ(a.full_timeout, b.full_timeout);
  EXPECT_EQ(a.conflict_timeout, b.conflict_timeout);
  EXPECT_EQ(a.wait_timeout, b.wait_timeout);
  EXPECT_EQ(a.drain_timeout, b.drain_timeout);
  EXPECT_EQ(a.entry_statistics, b.entry_statistics);
  EXPECT_EQ(a.statistics_at_exit, b.statistics_at_exit);
}

class environment : public testing::Test {
 protected:
  void SetUp() override { clear(); }
  void TearDown() override {
    clear();
    if (!path_.empty()) std::remove(path_.c_str());
  }

  static void clear() {
    for (const char* name : {"PINFOLD_RETAIN", "PINFOLD_MAX_COUNT", "PINFOLD_MAXCOUNT", "PINFOLD_CONFIG"})
      unsetenv(name);
  }

  std::string file_with(const std::string& text) {
    path_ = testing::TempDir() + "pinfold_settings_" + std::to_string(getpid());
    std::ofstream(path_) << text;
    return path_;
  }

 private:
  std::string path_;
};

TEST(parse_size, reads_numbers_and_units) {
  EXPECT_EQ(pinfold::parse_size("0"), 0U);
  EXPECT_EQ(pinfold::parse_size("17"), 17U);
  EXPECT_EQ(pinfold::parse_size("17B"), 17U);
  EXPECT_EQ(pinfold::parse_size("4K"), 4096U);
  EXPECT_EQ(pinfold::parse_size("4KB"), 4096U);
  EXPECT_EQ(pinfold::parse_size("4KiB"), 4096U);
  EXPECT_EQ(pinfold::parse_size("4 KiB"), 4096U);
  EXPECT_EQ(pinfold::parse_size("100 B"), 100U);
  EXPECT_EQ(pinfold::parse_size("1 T"), std::size_t{1} << 40);
  EXPECT_EQ(pinfold::parse_size("3M"), 3U << 20);
  EXPECT_EQ(pinfold::parse_size("1G"), 1U << 30);
  EXPECT_EQ(pinfold::parse_size("2T"), std::size_t{2} << 40);
  EXPECT_EQ(pinfold::parse_size("unlimited"), pinfold::unlimited);
  EXPECT_EQ(pinfold::parse_size("18446744073709551615"), SIZE_MAX);
}

TEST(parse_size, reads_fractions_and_lower_case) {
  EXPECT_EQ(pinfold::parse_size("4k"), 4096U);
  EXPECT_EQ(pinfold::parse_size("4kb"), 4096U);
  EXPECT_EQ(pinfold::parse_size("4 kiB"), 4096U);
  EXPECT_EQ(pinfold::parse_size("4Ki"), 4096U);
  EXPECT_EQ(pinfold::parse_size("64m"), 64U << 20);
  EXPECT_EQ(pinfold::parse_size("1.5K"), 1536U);
  EXPECT_EQ(pinfold::parse_size("1.5GiB"), 3U << 29);
  EXPECT_EQ(pinfold::parse_size("97.7 KiB"), 100045U);  // as the tool prints 100000 bytes: rounded
  EXPECT_EQ(pinfold::parse_size("17.0"), 17U);
}

TEST(parse_duration, reads_numbers_and_units) {
  using namespace std::chrono_literals;
  EXPECT_EQ(pinfold::parse_duration("5", 1ms), 5ms);
  EXPECT_EQ(pinfold::parse_duration("0.2", 1s), 200ms);
  EXPECT_EQ(pinfold::parse_duration("100ms", 1s), 100ms);
  EXPECT_EQ(pinfold::parse_duration("5s", 1ms), 5s);
  EXPECT_EQ(pinfold::parse_duration("1.5 s", 1ms), 1500ms);
  EXPECT_EQ(pinfold::parse_duration("7us", 1ms), 7us);
  EXPECT_EQ(pinfold::parse_duration("9ns", 1ms), 9ns);
  EXPECT_EQ(pinfold::parse_duration("2min", 1ms), 2min);
  EXPECT_EQ(pinfold::parse_duration("3h", 1ms), 3h);
}

TEST(parse_duration, refuses_malformed_durations_and_overflow) {
  using namespace std::chrono_literals;
  for (const char* bad : {"", "s", "-1s", "+1", " 1", "1 ", "1.s", ".5s", "1e3", "inf", "5S", "5 seconds", "0.5ns",
                          "9223372036854775808ns", "9223372037s", "18446744073709551616"}) {
    const auto parsed = pinfold::parse_duration(bad, 1ms);
    ASSERT_FALSE(parsed) << bad;
    EXPECT_EQ(parsed.error(), errc::invalid_argument) << bad;
  }
}

TEST(parse_size, refuses_malformed_sizes) {
  for (const char* bad : {"",    "K",   "B",   "-1",   "+1",   " 1", "1 ",    "1.",    ".5K",  "4KK", "1.5",     "1.5B",
                          "1.K", "4BK", "4iB", "4 iB", "4  K", "4 ", "4KBiB", "4KiBB", "0x10", "INF", "infinite"}) {
    const auto parsed = pinfold::parse_size(bad);
    ASSERT_FALSE(parsed) << bad;
    EXPECT_EQ(parsed.error(), errc::invalid_argument) << bad;
  }
}

TEST(parse_size, refuses_overflow) {
  EXPECT_FALSE(pinfold::parse_size("18446744073709551616"));
  EXPECT_FALSE(pinfold::parse_size("18014398509481984K"));
  EXPECT_FALSE(pinfold::parse_size("16777216T"));
  EXPECT_FALSE(pinfold::parse_size("16777215.9999999999999T"));
  EXPECT_EQ(pinfold::parse_size("16777215T"), std::size_t{16777215} << 40);
}

TEST(options_from_text, changes_only_the_named_options) {
  const auto options = pinfold::options_from_text(
      "# a comment\n\n  PINFOLD_MAX_BYTES=64M  # the rest of a line\r\nPINFOLD_WHEN_FULL = "
      "wait\nPINFOLD_FULL_TIMEOUT_MS=5",
      "test", unusual());
  ASSERT_TRUE(options);
  auto expected = unusual();
  expected.max_bytes = std::size_t{64} << 20;
  expected.full = pinfold::when_full::wait;
  expected.full_timeout = milliseconds(5);
  expect_same(*options, expected);
}

TEST(options_from_text, durations_may_have_units) {
  for (const char* text : {"PINFOLD_WAIT_TIMEOUT_MS=1500", "PINFOLD_WAIT_TIMEOUT_MS=1500ms",
                           "PINFOLD_WAIT_TIMEOUT_MS=1.5s", "PINFOLD_WAIT_TIMEOUT_MS=1.5 s"}) {
    const auto options = pinfold::options_from_text(text, "test");
    ASSERT_TRUE(options) << text;
    EXPECT_EQ(options->wait_timeout, milliseconds(1500)) << text;
  }
}

TEST(options_from_text, the_last_assignment_wins) {
  const auto options = pinfold::options_from_text("PINFOLD_MAX_COUNT=1\nPINFOLD_MAX_COUNT=2\n", "test");
  ASSERT_TRUE(options);
  EXPECT_EQ(options->max_count, 2U);
}

TEST(options_from_text, error_names_the_line_and_the_assignment) {
  const auto options = pinfold::options_from_text("\nPINFOLD_RETAIN=on\nPINFOLD_RETAIN=maybe # no\n", "my.conf");
  ASSERT_FALSE(options);
  EXPECT_EQ(options.error().cause, errc::invalid_argument);
  EXPECT_EQ(options.error().where, "my.conf:3: PINFOLD_RETAIN=maybe");
  EXPECT_STREQ(options.error().cause.message, "expected on or off");
}

TEST(options_from_text, nul_byte_is_an_error_that_names_the_line) {
  using namespace std::string_view_literals;
  const auto options = pinfold::options_from_text("PINFOLD_RETAIN=on\nPINFOLD_MAX_COUNT=1\0 2\n"sv, "my.conf");
  ASSERT_FALSE(options);
  EXPECT_EQ(options.error().where, "my.conf:2: PINFOLD_MAX_COUNT=1");
  EXPECT_STREQ(options.error().cause.message, "the line has a NUL byte");
}

TEST(options_from_text, refuses_bad_lines) {
  for (const char* bad : {"PINFOLD_RETAIN",
                          "=on",
                          "RETAIN=on",
                          "PINFOLD_RETAINS=on",
                          "pinfold_retain=on",
                          "PINFOLD_RETAIN=",
                          "PINFOLD_RETAIN=on#no",
                          "PINFOLD_RETAIN=on off",
                          "PINFOLD_CONFIG=other.conf",
                          "PINFOLD_MAX_BYTES=-1",
                          "PINFOLD_WHEN_FULL=explode",
                          "PINFOLD_CLOSES=never",
                          "PINFOLD_WAIT_TIMEOUT_MS=1.5",
                          "PINFOLD_MONITOR=",
                          "PINFOLD_MONITOR=hooks+",
                          "PINFOLD_MONITOR=+hooks",
                          "PINFOLD_MONITOR=hooks,bpf",
                          "PINFOLD_MONITOR=automatic+hooks",
                          "PINFOLD_MONITOR=Hooks",
                          "PINFOLD_STRICT=very",
                          "PINFOLD_AUDIT=often",
                          "PINFOLD_AUDIT=4294967296",
                          "PINFOLD_WAIT_TIMEOUT_MS=inf",
                          "PINFOLD_WAIT_TIMEOUT_MS=100us",
                          "PINFOLD_WAIT_TIMEOUT_MS=366000h",
                          "PINFOLD_WAIT_TIMEOUT_MS=31536000001"}) {
    const auto options = pinfold::options_from_text(bad, "test");
    ASSERT_FALSE(options) << bad;
    EXPECT_EQ(options.error().cause, errc::invalid_argument) << bad;
  }
}

TEST(options_from_text, R32_monitors_are_combined_with_plus) {
  using choice = pinfold::monitor_choice;
  const std::pair<const char*, choice> all[] = {{"automatic", choice::automatic},
                                                {"manual", choice::manual},
                                                {"hooks", choice::hooks},
                                                {"userfaultfd", choice::userfaultfd},
                                                {"bpf", choice::bpf},
                                                {"none", choice::none},
                                                {"userfaultfd+hooks", choice::hooks | choice::userfaultfd},
                                                {"manual+bpf+hooks", choice::manual | choice::bpf | choice::hooks}};
  for (const auto& [text, wanted] : all) {
    const auto options = pinfold::options_from_text(std::string("PINFOLD_MONITOR=") + text, "test", unusual());
    ASSERT_TRUE(options) << text;
    EXPECT_EQ(options->monitor, wanted) << text;
  }
}

TEST(to_text, every_monitor_choice_reads_back) {
  for (unsigned bits = 0; bits < 256; ++bits) {
    cache_options options;
    options.monitor = static_cast<pinfold::monitor_choice>(bits & 0x8fU);
    const auto again = pinfold::options_from_text(pinfold::to_text(options), "test", unusual());
    ASSERT_TRUE(again) << again.error().where;
    EXPECT_EQ(again->monitor, options.monitor);
  }
}

TEST(to_text, reads_back_as_the_same_options) {
  for (const auto& options : {cache_options{}, unusual()}) {
    const auto again = pinfold::options_from_text(pinfold::to_text(options), "test", unusual());
    ASSERT_TRUE(again) << again.error().where;
    expect_same(*again, options);
  }
}

TEST(to_text, shell_reads_the_text_as_the_same_variables) {
  const auto path = testing::TempDir() + "pinfold_shell_" + std::to_string(getpid());
  std::ofstream(path) << pinfold::to_text(unusual());
  const auto script = "set -eu; . '" + path + "'; test \"$PINFOLD_MAX_BYTES $PINFOLD_WHEN_FULL\" = '3M bypass'";
  EXPECT_EQ(std::system(script.c_str()), 0);
  std::remove(path.c_str());
}

TEST_F(environment, without_variables_the_base_is_returned) {
  const auto options = pinfold::options_from_environment(unusual());
  ASSERT_TRUE(options) << options.error().where;
  expect_same(*options, unusual());
}

TEST_F(environment, variables_override_the_file) {
  const auto path = file_with("PINFOLD_RETAIN=off\nPINFOLD_MAX_COUNT=3\n");
  setenv("PINFOLD_CONFIG", path.c_str(), 1);
  setenv("PINFOLD_MAX_COUNT", "4", 1);
  const auto options = pinfold::options_from_environment();
  ASSERT_TRUE(options) << options.error().where;
  EXPECT_FALSE(options->retain);
  EXPECT_EQ(options->max_count, 4U);
}

TEST_F(environment, a_misspelt_variable_is_an_error) {
  setenv("PINFOLD_MAXCOUNT", "4", 1);
  const auto options = pinfold::options_from_environment();
  ASSERT_FALSE(options);
  EXPECT_EQ(options.error().cause, errc::invalid_argument);
  EXPECT_EQ(options.error().where, "environment: PINFOLD_MAXCOUNT=4");
}

TEST_F(environment, variables_of_the_tests_are_ignored) {
  setenv("PINFOLD_TEST_ANYTHING", "whatever", 1);
  EXPECT_TRUE(pinfold::options_from_environment());
  unsetenv("PINFOLD_TEST_ANYTHING");
}

TEST_F(environment, variables_of_other_parts_are_no_options) {
  for (const char* name : {"PINFOLD_TRACE", "PINFOLD_DUMP_SIGNAL", "PINFOLD_DUMP_DIR", "PINFOLD_CUDA_LIBRARY",
                           "PINFOLD_LIBRARY", "PINFOLD_MONITORD"}) {
    setenv(name, "/run/somewhere", 1);
    const auto options = pinfold::options_from_environment(unusual());
    unsetenv(name);
    ASSERT_TRUE(options) << options.error().where;
    expect_same(*options, unusual());
  }
}

TEST_F(environment, an_error_in_the_file_names_its_line) {
  const auto path = file_with("PINFOLD_RETAIN=off\nPINFOLD_MAX_COUNT=x\n");
  setenv("PINFOLD_CONFIG", path.c_str(), 1);
  const auto options = pinfold::options_from_environment();
  ASSERT_FALSE(options);
  EXPECT_EQ(options.error().where, path + ":2: PINFOLD_MAX_COUNT=x");
}

TEST_F(environment, a_file_that_cannot_be_read_is_an_error_with_its_code) {
  setenv("PINFOLD_CONFIG", (testing::TempDir() + "pinfold/none/such").c_str(), 1);
  auto options = pinfold::options_from_environment();
  ASSERT_FALSE(options);
  EXPECT_EQ(options.error().cause.native, ENOENT);
  setenv("PINFOLD_CONFIG", testing::TempDir().c_str(), 1);
  options = pinfold::options_from_environment();
  ASSERT_FALSE(options);
  EXPECT_EQ(options.error().cause.native, EISDIR);
}

TEST_F(environment, an_empty_name_of_the_file_counts_as_none) {
  setenv("PINFOLD_CONFIG", "", 1);
  const auto options = pinfold::options_from_environment(unusual());
  ASSERT_TRUE(options) << options.error().where;
  expect_same(*options, unusual());
}

constexpr int obeys = 3;
constexpr int ignores = 4;

constexpr const char* is_copy = "PINFOLD_TEST_COPY";

// What the test below does as a program of its own.
[[noreturn]] void say_whether_environment_is_obeyed() {
  setenv("PINFOLD_MAX_BYTES", "4096", 1);
  const auto options = pinfold::options_from_environment();
  std::_Exit(options && options->max_bytes == 4096 ? obeys : options ? ignores : 5);
}

// Runs a copy of this program with that mode as an ordinary user. Returns its exit status.
int status_of_copy(std::filesystem::perms mode) {
  auto folder = ::testing::TempDir() + "pinfold_setuid_XXXXXX";
  EXPECT_NE(::mkdtemp(folder.data()), nullptr);
  const auto program = folder + "/program";
  std::filesystem::permissions(folder, std::filesystem::perms{0755});
  std::filesystem::copy_file("/proc/self/exe", program);
  std::filesystem::permissions(program, mode);
  const auto child = ::fork();
  if (child == 0) {
    if (!pinfold::testing::become_nobody() || ::setenv(is_copy, "1", 1) != 0) ::_exit(6);
    ::execl(program.c_str(), program.c_str(), "--gtest_filter=environment.is_ignored_by*", nullptr);
    ::_exit(7);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  std::filesystem::remove_all(folder);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(environment, is_ignored_by_a_program_with_more_rights_than_its_caller) {
  if (std::getenv(is_copy) != nullptr) say_whether_environment_is_obeyed();
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  ASSERT_EQ(status_of_copy(std::filesystem::perms{0755}), obeys);
  struct statvfs on{};
  ASSERT_EQ(::statvfs(::testing::TempDir().c_str(), &on), 0);
  if ((on.f_flag & ST_NOSUID) != 0) GTEST_SKIP() << "no set-user-ID programs in the folder of temporary files";
  EXPECT_EQ(status_of_copy(std::filesystem::perms{04755}), ignores);
}

TEST_F(environment, a_file_that_never_ends_is_an_error) {
  setenv("PINFOLD_CONFIG", "/dev/zero", 1);
  const auto options = pinfold::options_from_environment();
  ASSERT_FALSE(options);
  EXPECT_EQ(options.error().cause, errc::invalid_argument);
}

}  // namespace
}  // namespace settings_test
