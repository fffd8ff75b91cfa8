// SPDX-License-Identifier: BSD-3-Clause
// Recorded traces are replayed as recorded, and synthetic ones are always the same.
#include "trace/replay/recorded.hpp"
#include "trace/replay/second_chance.hpp"
#include "trace/replay/simulate.hpp"
#include "trace/replay/synthetic.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace pinfold::testing::workloads_test {
namespace {

recorded_trace parsed(const std::string& lines) {
  auto trace = parse_trace("# pinfold trace 1\n" + lines, "test");
  EXPECT_TRUE(trace) << trace.error().where;
  return trace ? *std::move(trace) : recorded_trace{};
}

constexpr const char* two_caches =
    "cache 1.1 a\n"
    "cache 1.2 b\n"
    "cache 1.3 unused\n"
    "1.1 0 0x1000 1 0x1000 4096 100\n"
    "1.2 0 0x1000 1 0x1000 4096 900\n"
    "1.1 0 0x1800 1 0x1000 4096 hit\n"
    "1.1 7 0x1000 1 0x1000 4096 50\n"
    "1.1 0 0x1000 1 0x1000 4096 300\n"
    "1.1 0 0x1000 1 0x1000 4096 200\n"
    "1.1 0 0x9000 1 0x9000 8192 hit\n";

TEST(recorded_workload, registrations_become_objects_of_one_workload_per_cache) {
  const auto all = tool::workloads_of(parsed(two_caches), nullptr);
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].name, "1.1 a");
  EXPECT_EQ(all[0].requests, (std::vector<std::uint32_t>{0, 0, 1, 0, 0, 2}));
  EXPECT_EQ(all[0].footprint(), 4096U + 4096 + 8192);
  EXPECT_EQ(all[0].objects[0].open_ns, 200) << "the median";
  EXPECT_EQ(all[0].objects[1].open_ns, 50) << "another peer";
  EXPECT_NEAR(all[0].objects[2].open_ns, 250, 1e-6) << "never seen to be opened: as the others, by bytes";
  EXPECT_EQ(all[1].requests.size(), 1U);
  EXPECT_EQ(all[1].objects[0].open_ns, 900);
}

TEST(recorded_workload, costs_can_be_taken_from_a_model) {
  const auto& model = tool::all_cost_models().front();
  const auto all = tool::workloads_of(parsed(two_caches), &model);
  EXPECT_DOUBLE_EQ(all[0].objects[0].open_ns, model.open_fixed + 4 * model.open_per_kib);
  EXPECT_DOUBLE_EQ(all[0].objects[0].close_ns, model.close_fixed + 4 * model.close_per_kib);
}

TEST(simulation, cost_is_the_sum_of_opens_and_closes_of_evictions) {
  tool::workload of;
  of.objects = {{10, 10, 100, 7}, {10, 10, 1000, 70}, {25, 25, 5, 3}};
  of.requests = {0, 0, 1, 0, 2};
  tool::second_chance chooser(of);
  const auto seen = tool::simulate(of, chooser, 10);
  EXPECT_EQ(seen.hits, 1U);
  EXPECT_EQ(seen.misses, 4U);
  EXPECT_EQ(seen.evictions, 2U);
  EXPECT_EQ(seen.too_large, 1U);
  EXPECT_DOUBLE_EQ(seen.cost_ns, 100 + (7 + 1000) + (70 + 100) + (5 + 3));
}

TEST(simulation, budget_can_be_counted_in_entries) {
  tool::workload of;
  of.objects = {{10, 10, 1, 0}, {1000, 1000, 1, 0}, {10, 10, 1, 0}};
  of.requests = {0, 1, 2, 1};
  tool::count_room(of, true);
  tool::second_chance counted(of);
  EXPECT_EQ(tool::simulate(of, counted, 2).evictions, 1U);
  tool::count_room(of, false);
  tool::second_chance weighed(of);
  EXPECT_EQ(tool::simulate(of, weighed, 2).too_large, 4U);
}

TEST(simulation, misjudged_costs_affect_the_policy_and_not_the_result) {
  tool::workload of;
  for (std::size_t i = 0; i < 200; ++i) of.objects.push_back({8, 8, 1000, 0});
  tool::misjudge(of, 10, 1);
  double least = 1e9;
  double most = 0;
  for (const auto& one : of.objects) {
    EXPECT_EQ(one.cost(), 1000);
    least = std::min(least, one.density() / 125);
    most = std::max(most, one.density() / 125);
  }
  EXPECT_GE(least, 0.1);
  EXPECT_LT(least, 0.2);
  EXPECT_LE(most, 10);
  EXPECT_GT(most, 5);
  tool::misjudge(of, 1, 1);
  EXPECT_EQ(of.objects[0].density(), 125);
}

TEST(synthetic_workload, same_seed_makes_the_same_requests) {
  const auto& costs = tool::all_cost_models().front();
  for (const auto& one : tool::all_synthetic()) {
    const auto first = one.make(costs, 5);
    EXPECT_GE(first.requests.size(), 400'000U);
    EXPECT_EQ(first.requests, one.make(costs, 5).requests) << one.name;
    if (std::string(one.name) != "loop") {
      EXPECT_NE(first.requests, one.make(costs, 6).requests) << one.name;
    }
    for (const auto request : first.requests) ASSERT_LT(request, first.objects.size());
    for (const auto& object : first.objects) ASSERT_GT(object.open_ns, 0);
  }
}

}  // namespace
}  // namespace pinfold::testing::workloads_test
