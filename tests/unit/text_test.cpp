// SPDX-License-Identifier: BSD-3-Clause
#include "support/fixtures/unique_names.hpp"

#include <pinfold/events.hpp>
#include <pinfold/statistics.hpp>

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <string>

namespace text_test {
namespace {

using pinfold::entry_state;
using pinfold::event;
using pinfold::event_kind;
using pinfold::severity;

TEST(name_of, every_event_kind_has_a_unique_name) {
  pinfold::testing::expect_unique_names(event_kind::refused_by_node_budget);
  EXPECT_STREQ(pinfold::name_of(event_kind::close_failed), "close_failed");
}

TEST(name_of, every_entry_state_has_a_unique_name) {
  pinfold::testing::expect_unique_names(entry_state::quarantined);
  EXPECT_STREQ(pinfold::name_of(entry_state::draining), "draining");
}

TEST(name_of, invalid_values_are_named_unknown) {
  EXPECT_STREQ(pinfold::name_of(static_cast<event_kind>(200)), "unknown");
  EXPECT_STREQ(pinfold::name_of(static_cast<entry_state>(200)), "unknown");
}

TEST(describe_event, R49_prints_range_leases_and_owner) {
  const event what{.kind = event_kind::invalidated_while_leased,
                   .level = severity::warning,
                   .cache = "halo",
                   .peer = {3},
                   .where = {0x1000, 0x3000},
                   .leases = 2,
                   .owner = 4711};
  EXPECT_EQ(pinfold::describe(what),
            "halo: warning: invalidated_while_leased peer 3 [0x1000, 0x3000), 2 leases out, opened by thread 4711");
}

TEST(describe_event, prints_the_error_of_the_driver) {
  const pinfold::error cause{pinfold::errc::driver_error, pinfold::native_kind::posix, EINVAL, "munmap failed"};
  const event what{
      .kind = event_kind::close_failed, .level = severity::failure, .cache = "c", .leases = 1, .cause = &cause};
  EXPECT_EQ(pinfold::describe(what), "c: failure: close_failed, 1 lease out: " + pinfold::describe(cause));
}

TEST(describe_event, prints_the_cost_of_a_request) {
  using std::chrono::nanoseconds;
  event what{.kind = event_kind::requested,
             .level = severity::debug,
             .cache = "c",
             .peer = {3},
             .where = {0x1010, 0x1020},
             .registered = {0x1000, 0x3000},
             .opened_for = nanoseconds(1300)};
  EXPECT_EQ(pinfold::describe(what),
            "c: debug: requested peer 3 [0x1010, 0x1020), opened in 1300 ns, registered [0x1000, 0x3000)");
  what.hit = true;
  EXPECT_EQ(pinfold::describe(what), "c: debug: requested peer 3 [0x1010, 0x1020), hit, registered [0x1000, 0x3000)");
}

TEST(describe_event, omits_unset_fields) {
  const event what{.kind = event_kind::statistics, .level = severity::info, .cache = "c", .text = "hits=1"};
  EXPECT_EQ(pinfold::describe(what), "c: info: statistics: hits=1");
}

TEST(describe_statistics, R44_prints_one_line_of_pairs) {
  pinfold::statistics counters;
  counters.hits = 12;
  counters.bypass_bytes = 34;
  counters.waited = std::chrono::microseconds(5);
  const auto line = pinfold::describe(counters);
  EXPECT_TRUE(line.starts_with("hits=12 valid=0 ")) << line;
  EXPECT_TRUE(line.ends_with(" bypass_bytes=34 requests_waiting=0 closes_due=0 waited_ns=5000")) << line;
  EXPECT_EQ(line.find('\n'), std::string::npos);
}

// Sets each counter to a number of its own through the bytes of the structure, so that a missing or doubled one shows.
TEST(describe_statistics, R43_shows_every_counter_once) {
  constexpr std::size_t count = sizeof(pinfold::statistics) / sizeof(std::uint64_t);
  std::array<std::uint64_t, count> numbers{};
  for (std::size_t i = 0; i < count; ++i) numbers[i] = 1000 + i;
  const auto line = " " + pinfold::describe(std::bit_cast<pinfold::statistics>(numbers)) + " ";
  for (const auto number : numbers) {
    const auto value = "=" + std::to_string(number) + " ";
    const auto first = line.find(value);
    ASSERT_NE(first, std::string::npos) << number << " in " << line;
    EXPECT_EQ(line.find(value, first + 1), std::string::npos) << number << " in " << line;
  }
}

TEST(log_to_stderr, writes_events_of_the_given_severity_or_higher) {
  const auto sink = pinfold::log_to_stderr(severity::warning);
  testing::internal::CaptureStderr();
  sink({.kind = event_kind::evicted, .level = severity::info, .cache = "c"});
  sink({.kind = event_kind::conflict, .level = severity::warning, .cache = "c"});
  sink({.kind = event_kind::close_failed, .level = severity::failure, .cache = "c"});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "c: warning: conflict\nc: failure: close_failed\n");
}

}  // namespace
}  // namespace text_test
