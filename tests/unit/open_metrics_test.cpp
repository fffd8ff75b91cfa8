// SPDX-License-Identifier: BSD-3-Clause
// Statistics as OpenMetrics: names, labels and values.
#include "support/fixtures/forged_page.hpp"
#include "support/fixtures/local_fixture.hpp"

#include <pinfold/observation/counters.hpp>
#include <pinfold/observation/open_metrics.hpp>
#include <pinfold/pinfold.h>

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace pinfold::testing::open_metrics_test {
namespace {

using observation::metrics_format;
using observation::process_snapshot;

process_snapshot one_process(std::string cache_name = "weights") {
  process_snapshot made;
  made.path = "/pages/7.99.0";
  made.pid = 7;
  made.state = observation::process_state::running;
  made.command = "trainer";
  made.caches.resize(1);
  made.caches[0].number = 1;
  made.caches[0].name = std::move(cache_name);
  made.caches[0].kind = "mlock";
  made.caches[0].max_bytes = 1000;
  made.caches[0].max_count = UINT64_MAX;
  return made;
}

std::string text_of(const std::vector<process_snapshot>& of, metrics_format as = metrics_format::open_metrics) {
  return observation::open_metrics(of, as);
}

/// Returns the samples by name and labels. Expects that none is there twice.
std::map<std::string, std::string> samples_in(const std::string& text) {
  std::map<std::string, std::string> all;
  std::istringstream lines(text);
  for (std::string one; std::getline(lines, one);) {
    if (one.starts_with('#')) continue;
    const auto blank = one.rfind(' ');
    EXPECT_TRUE(all.emplace(one.substr(0, blank), one.substr(blank + 1)).second) << one;
  }
  return all;
}

const std::string labels = R"({pid="7",page="7.99.0",command="trainer",cache="weights",number="1",registrar="mlock")";

TEST(open_metrics, has_every_counter_under_its_name_and_unit) {
  auto process = one_process();
  std::array<std::uint64_t, observation::most_counters> values{};
  for (std::size_t i = 0; i < observation::counters.size(); ++i) values[i] = 1000 + i;
  process.caches[0].counters = observation::statistics_of(values);
  const auto text = text_of({process});
  const auto samples = samples_in(text);
  for (std::size_t i = 0; i < observation::counters.size(); ++i) {
    const std::string name = observation::counters[i].name;
    if (name == "misses") continue;  // the sum of its reasons
    const auto value = " " + std::to_string(1000 + i) + "\n";
    if (name == "waited")
      EXPECT_NE(text.find("} " + std::string("1.028e-06\n")), std::string::npos) << text;
    else
      EXPECT_NE(text.find(value), std::string::npos) << name;
  }
  EXPECT_EQ(samples.at("pinfold_acquires_total" + labels + "}"), "1000");
  EXPECT_EQ(samples.at("pinfold_misses_total" + labels + R"(,reason="cold"})"), "1004");
  EXPECT_EQ(samples.at("pinfold_misses_total" + labels + R"(,reason="evicted"})"), "1008");
  EXPECT_EQ(samples.at("pinfold_limit_bytes" + labels + "}"), "1000.0");
  EXPECT_EQ(samples.at("pinfold_limit_entries" + labels + "}"), "+Inf");
  EXPECT_TRUE(samples.contains("pinfold_used_bytes" + labels + "}"));
}

TEST(open_metrics, ends_with_eof_and_keeps_each_family_together) {
  const auto text = text_of({one_process(), one_process("other")});
  EXPECT_TRUE(text.ends_with("\n# EOF\n"));
  std::set<std::string> seen;
  std::string now;
  std::istringstream lines(text);
  for (std::string one; std::getline(lines, one);) {
    if (one.starts_with("# TYPE ")) {
      now = one.substr(7, one.find(' ', 7) - 7);
      EXPECT_TRUE(seen.insert(now).second) << "twice: " << now;
    }
    EXPECT_TRUE(one.starts_with('#') || one.starts_with(now)) << one;
  }
  EXPECT_EQ(text_of({}, metrics_format::prometheus).find("EOF"), std::string::npos);
}

TEST(open_metrics, keeps_hostile_names_inside_their_labels) {
  auto process = one_process("a\"} 1\nevil{x=\"\\");
  process.command = "\xff\x01#";
  const auto text = text_of({process});
  EXPECT_NE(text.find(R"(cache="a\"} 1\nevil{x=\"\\",number="1")"), std::string::npos) << text;
  EXPECT_NE(text.find(R"(command="??#")"), std::string::npos);
  EXPECT_EQ(text.find("\nevil"), std::string::npos);
}

TEST(open_metrics, tells_pages_and_caches_with_the_same_names_apart) {
  auto damaged = one_process();
  damaged.caches.push_back(damaged.caches[0]);
  EXPECT_GT(samples_in(text_of({damaged, damaged, one_process()})).size(), 100U);
}

TEST(open_metrics, writes_cumulative_buckets_in_seconds) {
  auto process = one_process();
  auto& one = process.caches[0].opens[1];
  for (const std::uint64_t ns : {100U, 5000U, 5000U}) {
    ++one.counts[observation::bucket_of(ns)];
    one.sum += ns;
  }
  process.caches[0].hits_of_evicted.counts[observation::bucket_of(3 * 128)] = 4;
  const auto samples = samples_in(text_of({process}));
  const auto bucket = [&](const char* le) {
    return samples.at("pinfold_open_seconds_bucket" + labels + R"(,size_class="64KiB",le=")" + le + "\"}");
  };
  EXPECT_EQ(bucket("1.024e-06"), "1");
  EXPECT_EQ(bucket("4.096e-06"), "1");
  EXPECT_EQ(bucket("8.192e-06"), "3");
  EXPECT_EQ(bucket("+Inf"), "3");
  EXPECT_EQ(samples.at("pinfold_open_seconds_sum" + labels + R"(,size_class="64KiB"})"), "1.01e-05");
  EXPECT_EQ(samples.at("pinfold_evicted_hits_bucket" + labels + R"(,le="0.0"})"), "0");
  EXPECT_EQ(samples.at("pinfold_evicted_hits_bucket" + labels + R"(,le="3.0"})"), "4");
  EXPECT_FALSE(samples.contains("pinfold_wait_seconds_count" + labels + "}"));
}

TEST(open_metrics, does_not_let_damaged_buckets_count_down) {
  auto process = one_process();
  process.caches[0].waits.counts.fill(UINT64_MAX / 3);
  std::uint64_t before = 0;
  for (const auto& [name, value] : std::map<std::string, std::string>(samples_in(text_of({process}))))
    if (name.starts_with("pinfold_wait_seconds_count")) before = std::stoull(value);
  EXPECT_EQ(before, UINT64_MAX);
}

TEST(open_metrics, ends_the_series_of_a_process_that_ended) {
  auto process = one_process();
  process.state = observation::process_state::ended;
  const auto samples = samples_in(text_of({process}));
  EXPECT_EQ(samples.at(R"(pinfold_process_state{pid="7",page="7.99.0",command="trainer",state="ended"})"), "1");
  for (const auto& [name, value] : samples)
    EXPECT_TRUE(name.find("pages") != std::string::npos || name.starts_with("pinfold_process_state")) << name;
}

TEST(open_metrics, shows_this_process) {
  const auto folder = ::testing::TempDir() + "open_metrics_" + std::to_string(::getpid());
  ::setenv("PINFOLD_STATS_DIR", folder.c_str(), 1);
  const auto none = observation::open_metrics_here();
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().native, ENOENT);
  EXPECT_EQ(pinfold_open_metrics(nullptr, 0), 0U);
  EXPECT_EQ(pinfold_last_error()->native, ENOENT);
  local_fixture f({.name = "mine", .publish_statistics = true});
  f.touch(0x10000, 0x11000);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  std::string text;
  const auto shown = [&] {
    const auto at = text.find("pinfold_acquires_total{");
    return at != std::string::npos && text.substr(at, text.find('\n', at) - at).ends_with(R"(registrar="pretend"} 1)");
  };
  while (!shown() && std::chrono::steady_clock::now() < deadline) {
    const auto seen = observation::open_metrics_here();
    ASSERT_TRUE(seen) << describe(seen.error());
    text = *seen;
  }
  EXPECT_TRUE(shown()) << text;
  EXPECT_NE(text.find(R"(cache="mine")"), std::string::npos);
  std::vector<char> in_c(4 * text.size());
  const auto length = pinfold_open_metrics(in_c.data(), in_c.size());
  ASSERT_LT(length, in_c.size());
  EXPECT_TRUE(std::string_view(in_c.data(), length).ends_with("\n# EOF\n"));
  EXPECT_GT(pinfold_open_metrics(nullptr, 0), 0U);
}

}  // namespace
}  // namespace pinfold::testing::open_metrics_test
