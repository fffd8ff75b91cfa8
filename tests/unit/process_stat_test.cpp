// SPDX-License-Identifier: BSD-3-Clause
#include "os/process_stat.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <unistd.h>

namespace pinfold::os::process_stat_test {
namespace {

/// Returns a line of /proc/PID/stat: fields 4 to 52 hold their own numbers, except one.
std::string stat_line(const std::string& name, int other, const std::string& its_text) {
  std::string line = "4711 (" + name + ") S";
  for (int field = 4; field <= 52; ++field) line += " " + (field == other ? its_text : std::to_string(field));
  return line + "\n";
}

}  // namespace

TEST(process_stat, fields_are_found_whatever_the_name) {
  for (const char* name : {"sh", "a b", ") S 1 2 3 (", "", "((", "))"}) {
    const auto seen = parse_process_stat(stat_line(name, 22, "987654321"));
    ASSERT_TRUE(seen) << name;
    EXPECT_EQ(seen->state, 'S') << name;
    EXPECT_EQ(seen->flags, 9U) << name;
    EXPECT_EQ(seen->threads, 20U) << name;
    EXPECT_EQ(seen->started, 987654321U) << name;
    EXPECT_EQ(seen->stack, 28U) << name;
  }
}

TEST(process_stat, malformed_lines_are_refused) {
  const std::string whole = stat_line("sh", 22, "77");
  const std::string cut_off = whole.substr(0, whole.find(" 28") + 3);
  for (const std::string& line : {std::string{}, std::string{"4711 (sh"}, std::string{"1 (sh)"}, cut_off})
    EXPECT_FALSE(parse_process_stat(line)) << line;
  for (const int field : {9, 20, 22, 28})
    for (const char* const text : {"later", "99999999999999999999999", "-1", "7x", ""})
      EXPECT_FALSE(parse_process_stat(stat_line("sh", field, text))) << field << ": " << text;
}

TEST(process_stat, process_has_ended_when_its_main_thread_has_and_it_has_no_other) {
  EXPECT_FALSE((process_stat{.state = 'S', .threads = 1}.ended()));
  EXPECT_FALSE((process_stat{.state = 'Z', .threads = 2}.ended()));
  EXPECT_TRUE((process_stat{.state = 'Z', .threads = 1}.ended()));
  EXPECT_TRUE((process_stat{.state = 'X', .threads = 0}.ended()));
}

TEST(process_stat, this_process_runs) {
  const auto own = read_own_stat();
  const auto same = read_process_stat(::getpid());
  ASSERT_TRUE(own && same);
  EXPECT_EQ(own->started, same->started);
  EXPECT_EQ(own->stack, same->stack);
  EXPECT_FALSE(own->ended());
  EXPECT_FALSE(own->main_thread_ends());
}

TEST(process_stat, missing_process_is_enoent) {
  const auto none = read_process_stat(0x7fff'fffe);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().native, ENOENT);
}

TEST(proc_path, is_written_as_it_is_read) {
  EXPECT_STREQ(proc_path(17, "/stat").text(), "/proc/17/stat");
  EXPECT_STREQ(proc_path(2147483647, "/fd/", 2147483647).text(), "/proc/2147483647/fd/2147483647");
  EXPECT_STREQ(proc_path("/proc/thread-self/fdinfo/", 2147483647).text(), "/proc/thread-self/fdinfo/2147483647");
}

}  // namespace pinfold::os::process_stat_test
