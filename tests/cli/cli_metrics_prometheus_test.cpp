// SPDX-License-Identifier: BSD-3-Clause
// `pinfold metrics --listen` scraped by Debian's Prometheus: the dashboard's queries and the alerts have data.
#include "support/fixtures/forged_page.hpp"
#include "support/fixtures/local_fixture.hpp"
#include "support/fixtures/page_folder.hpp"
#include "support/processes/child_process.hpp"
#include "support/processes/metrics_server.hpp"
#include "support/processes/prometheus.hpp"
#include "support/processes/tool_run.hpp"

#include <pinfold/observation/counters.hpp>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <unistd.h>

namespace pinfold::testing::cli_metrics_prometheus_test {
namespace {

constexpr std::uintptr_t first = 0x100000;
constexpr std::uintptr_t size = 0x1000;

void touch(local_fixture<>& f, std::uintptr_t number) {
  static_cast<void>(f.acquire(first + number * 2 * size, first + number * 2 * size + size));
}

/// A child whose cache is full and evicts, hits every second time, refuses a request for each hit, has one registration
/// in quarantine, and whose driver has refused an open. Its locked memory is limited. It goes on until the test says
/// something, or ends.
int busy(line& talk) {
  rlimit locked{};
  ::getrlimit(RLIMIT_MEMLOCK, &locked);
  locked.rlim_cur = std::min<rlim_t>(locked.rlim_max, 1 << 20);
  ::setrlimit(RLIMIT_MEMLOCK, &locked);
  local_fixture f({.name = "busy", .max_bytes = 1 << 20, .max_count = 4, .publish_statistics = true});
  f.device->fail_closes(1);
  touch(f, 0);
  f.invalidate(first, first + size);
  f.device->fail_opens([](const range&, access_flags) { return error{.code = errc::driver_error, .native = 5}; });
  touch(f, 1);
  f.device->fail_opens({});
  talk.send(true);
  for (std::uintptr_t i = 2;; i = i == 200 ? 2 : i + 1) {
    touch(f, i);
    touch(f, i);
    static_cast<void>(f.acquire(first, first + (2 << 20)));  // larger than the budget
    if (i % 64 == 0) f.invalidate(first, first + 1000 * size);
    ::usleep(2000);
    if (::recv(talk.number(), &i, 1, MSG_DONTWAIT | MSG_PEEK) >= 0) return 0;
  }
}

/// A child with a cache that publishes, and that does nothing.
int idle(line& talk) {
  local_fixture f({.name = "idle", .publish_statistics = true});
  talk.send(true);
  static_cast<void>(talk.receive<bool>());
  return 0;
}

std::size_t place_of(std::string_view counter) {
  std::size_t found = 0;
  while (found < observation::counters.size() && observation::counters[found].name != counter) ++found;
  return found;
}

/// Sets what no real cache reaches here, in a page of this process.
void set_rare(forged_page& page, std::uint64_t to) {
  for (const char* one : {"monitor_failures", "failed_audits", "invalidated_while_leased", "invalid", "expired"})
    page.cache.counters.at(place_of(one)) = to;
}

/// Returns an expression as Grafana asks it.
std::string filled_in(std::string expression) {
  for (const auto& [name, value] :
       std::map<std::string, std::string>{{"$__rate_interval", "10s"}, {"$command", ".*"}, {"$cache", ".*"}})
    for (auto at = expression.find(name); at != std::string::npos; at = expression.find(name))
      expression.replace(at, name.size(), value);
  return expression;
}

double number(const json& sample) { return std::stod(sample.at("value").at(1).get<std::string>()); }

/// Returns the sample of the cache; fails without one.
double of_cache(const json& samples, const std::string& cache) {
  for (const auto& one : samples)
    if (one.at("metric").value("cache", "") == cache) return number(one);
  ADD_FAILURE() << "no sample of " << cache << " in " << samples.dump();
  return -1;
}

using by_state = std::map<std::string, double>;
using by_name = std::map<std::string, std::string>;

/// Returns the expressions of the alerts that the server has loaded.
by_name alerts_of(const prometheus_server& prometheus) {
  json groups;
  for (int i = 0; i < 200 && groups.empty(); ++i) {
    ::usleep(50'000);
    if (const auto data = prometheus.data("/api/v1/rules"); data.is_object()) groups = data.at("groups");
  }
  by_name alerts;
  for (const auto& group : groups)
    for (const auto& rule : group.at("rules")) alerts[rule.at("name")] = rule.at("query");
  EXPECT_EQ(alerts.size(), 11U);
  return alerts;
}

/// Returns whether an alert is silent. A process that publishes late on a busy machine counts as stopped for a moment.
bool is_silent(const prometheus_server& prometheus, const std::string& name, const std::string& expression) {
  return (name == "PinfoldProcessStopped" ? prometheus.await(expression, 0) : prometheus.query(expression)).empty();
}

/// Expects that each alert has one cause, in the process that `pids` names for it.
void expect_one_cause_each(const prometheus_server& prometheus, const by_name& alerts, const by_name& pids) {
  for (const auto& [name, expression] : alerts) {
    const auto samples = prometheus.await(expression, 1);
    ASSERT_EQ(samples.size(), 1U) << name << ": " << expression << samples.dump();
    EXPECT_EQ(samples.at(0).at("metric").value("pid", "none"), pids.at(name)) << name << samples.dump();
  }
}

/// Asks all queries of the dashboard. Returns the samples of each panel's first.
std::map<std::string, json> panels_of(const prometheus_server& prometheus) {
  std::map<std::string, json> shown;
  const auto dashboard = json::parse(contents_of(PINFOLD_CONTRIB "/grafana/pinfold.json"));
  for (const auto& panel : dashboard.at("panels"))
    for (const auto& target : panel.at("targets")) {
      const auto expression = filled_in(target.at("expr"));
      const auto samples = prometheus.await(expression);
      EXPECT_FALSE(samples.empty()) << panel.at("title") << ": " << expression;
      shown.try_emplace(panel.at("title"), samples);
    }
  return shown;
}

by_state states_of(const std::map<std::string, json>& shown) {
  by_state states;
  for (const auto& one : shown.at("Processes by state")) states[one.at("metric").at("state")] = number(one);
  return states;
}

by_state right_states() { return {{"running", 2}, {"stopped", 1}, {"ended", 1}, {"unknown", 0}}; }

void expect_right(const std::map<std::string, json>& shown) {
  EXPECT_EQ(of_cache(shown.at("Bytes against the budget"), "rare"), 0.25);
  EXPECT_EQ(of_cache(shown.at("Quarantine"), "busy"), 1);
  EXPECT_LE(of_cache(shown.at("Registered bytes"), "busy"), 4 * size);
  EXPECT_NEAR(of_cache(shown.at("Hit rate"), "busy"), 0.5, 0.1);
  EXPECT_GT(of_cache(shown.at("Evictions"), "busy"), 0);
  EXPECT_GT(of_cache(shown.at("Failures"), "busy"), 0);
  for (const auto& one : shown.at("Locked memory"))
    EXPECT_NE(one.at("metric").at("pid"), std::to_string(::getpid())) << "imports lock nothing";
  EXPECT_GT(number(shown.at("Duration of opens").at(0)), 0);
  EXPECT_EQ(states_of(shown), right_states());
}

forged_page rare_page() {
  forged_page rare;
  set_text(rare.cache.name, "rare");
  set_text(rare.cache.kind, "memfd");
  rare.header.memlock_limit = 1 << 20;
  rare.cache.max_bytes = 1000;
  rare.cache.counters.at(place_of("bytes_now")) = 250;
  rare.cache.counters.at(place_of("bypass_bytes")) = 77;
  return rare;
}

/// Expects that promtool accepts the file of alerts.
void expect_accepted(const std::string& arguments, const page_folder& folder) {
  const auto said = folder.path() + "/said";
  const auto command = "promtool " + arguments + " >'" + said + "' 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << contents_of(said);
}

TEST(cli_metrics_prometheus, has_alerts_that_fire_for_their_causes_only) {
  if (!prometheus_server::is_installed()) GTEST_SKIP() << "Prometheus is not installed";
  const page_folder folder;
  expect_accepted("check rules '" PINFOLD_CONTRIB "/prometheus/pinfold-alerts.yml'", folder);
  expect_accepted("test rules '" PINFOLD_CONTRIB "/prometheus/pinfold-alerts-test.yml'", folder);
}

TEST(cli_metrics_prometheus, answers_the_dashboard_and_the_alerts) {
  if (!tool_serves()) GTEST_SKIP() << "built without libmicrohttpd";
  if (!prometheus_server::is_installed()) GTEST_SKIP() << "Prometheus is not installed";
  const page_folder folder;
  child_process working(busy);
  child_process stopping(idle);
  child_process dying(idle);
  for (auto* one : {&working, &stopping, &dying}) ASSERT_TRUE(one->talk().receive<bool>());
  auto rare = rare_page();
  rare.write(folder.path());
  const metrics_server server("127.0.0.1:0");
  const prometheus_server prometheus(folder.path(), server.port(), PINFOLD_CONTRIB "/prometheus/pinfold-alerts.yml");
  ASSERT_EQ(prometheus.await("pinfold_pages").size(), 1U) << contents_of(folder.path() + "/prometheus.log");
  ASSERT_FALSE(prometheus.await("rate(pinfold_invalid_total{cache='rare'}[10s])").empty());

  const auto here = std::to_string(::getpid());
  const auto there = std::to_string(working.pid());
  const by_name pids{{"PinfoldQuarantine", there},
                     {"PinfoldBudgetFull", there},
                     {"PinfoldAcquiresFail", there},
                     {"PinfoldOpensFail", there},
                     {"PinfoldMonitorFailed", here},
                     {"PinfoldAuditFailed", here},
                     {"PinfoldMemoryGoneUnderLease", here},
                     {"PinfoldStaleSpike", here},
                     {"PinfoldProcessStopped", std::to_string(stopping.pid())},
                     {"PinfoldPagesUnreadable", "none"},
                     {"PinfoldProcessDied", std::to_string(dying.pid())}};
  const auto alerts = alerts_of(prometheus);
  for (const auto& [name, expression] : alerts)
    EXPECT_TRUE(pids.at(name) == there || is_silent(prometheus, name, expression)) << name << " without a cause";
  set_rare(rare, 100'000);
  rare.write(folder.path());
  std::ofstream(folder.path() + "/77.1.1.0") << "no page";
  stopping.stop();
  dying.kill();
  expect_one_cause_each(prometheus, alerts, pids);
  auto shown = panels_of(prometheus);
  for (int tries = 0; tries < 20 && states_of(shown) != right_states(); ++tries) shown = panels_of(prometheus);
  expect_right(shown);
}

}  // namespace
}  // namespace pinfold::testing::cli_metrics_prometheus_test
