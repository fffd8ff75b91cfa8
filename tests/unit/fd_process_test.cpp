// SPDX-License-Identifier: BSD-3-Clause
#include "fd_passing/process.hpp"

#include <gtest/gtest.h>

#include <string>
#include <unistd.h>

namespace fd_process_test {
namespace {

using pinfold::errc;
using pinfold::fd_passing::parse_start_time;

/// Returns a line of /proc/<pid>/stat: fields 4 to 52 hold their own numbers, except field 22.
std::string stat_line(const std::string& name, const std::string& start_time) {
  std::string line = "4711 (" + name + ") S";
  for (int field = 4; field <= 52; ++field) line += " " + (field == 22 ? start_time : std::to_string(field));
  return line + "\n";
}

TEST(fd_process, start_time_is_field_22_whatever_the_name) {
  for (const char* name : {"sh", "a b", ") S 1 2 3 (", "", "((", "))"}) {
    EXPECT_EQ(parse_start_time(stat_line(name, "987654321")).value(), 987654321U) << name;
  }
}

TEST(fd_process, malformed_lines_are_errors) {
  const std::string whole = stat_line("sh", "77");
  const std::string cut = whole.substr(0, whole.find(" 77") + 3);
  for (const std::string& line :
       {std::string{}, std::string{"4711 (sh"}, std::string{"1 (sh)"}, cut, stat_line("sh", "later"),
        stat_line("sh", "99999999999999999999999"), stat_line("sh", "-1"), stat_line("sh", "7x")}) {
    EXPECT_EQ(parse_start_time(line).error(), errc::driver_error) << line;
  }
}

TEST(fd_process, this_process_started_after_init) {
  const auto own = pinfold::fd_passing::start_time_of(::getpid());
  const auto first = pinfold::fd_passing::start_time_of(1);
  ASSERT_TRUE(own && first);
  EXPECT_GE(*own, *first);
  EXPECT_EQ(pinfold::fd_passing::start_time_of(::getpid()).value(), *own);
}

TEST(fd_process, start_time_of_a_missing_process_is_peer_gone) {
  const auto none = pinfold::fd_passing::start_time_of(0x7fff'fffe);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error(), errc::peer_gone);
}

}  // namespace
}  // namespace fd_process_test
