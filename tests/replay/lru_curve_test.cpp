// SPDX-License-Identifier: BSD-3-Clause
// One pass over the requests gives LRU's misses for every budget; the simulation is the oracle.
#include "trace/analysis/lru_curve.hpp"
#include "trace/replay/lru.hpp"
#include "trace/replay/simulate.hpp"
#include "trace/replay/synthetic.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>

namespace pinfold::testing::lru_curve_test {
namespace {

tool::replay_result simulated(const tool::workload& of, std::size_t budget) {
  tool::lru chooser(of);
  return tool::simulate(of, chooser, budget);
}

std::size_t largest(const tool::workload& of) {
  std::size_t room = 0;
  for (const auto& one : of.objects) room = std::max(room, one.room);
  return room;
}

void expect_as_simulated(const tool::workload& of) {
  const tool::lru_curve curve(of);
  for (const double share : {0.0, 0.01, 0.1, 0.3, 0.7, 1.0}) {
    const auto room = static_cast<double>(curve.everything());
    const auto budget = std::max(largest(of), static_cast<std::size_t>(room * share));
    const auto expected = simulated(of, budget);
    EXPECT_EQ(curve.misses(budget), expected.misses) << of.name << ", budget " << budget;
    double opens = expected.cost_ns;
    if (expected.evictions == 0) {
      EXPECT_NEAR(curve.cost_ns(budget), opens, 1e-6 * opens);
    }
  }
}

TEST(lru_curve, equals_the_simulation_on_synthetic_traces) {
  const auto& costs = tool::all_cost_models().front();
  for (const auto& known : tool::all_synthetic()) {
    if (std::string(known.name) == "pages" || std::string(known.name) == "loop") continue;  // for time
    auto of = known.make(costs, 1);
    of.name = known.name;
    of.requests.resize(100'000);
    expect_as_simulated(of);
    tool::count_room(of, true);
    expect_as_simulated(of);
  }
}

TEST(lru_curve, equals_the_simulation_for_every_budget_of_random_small_traces) {
  const char* given = std::getenv("PINFOLD_TEST_SEED");
  const auto seed = given != nullptr ? std::stoull(given) : std::random_device()();
  RecordProperty("seed", std::to_string(seed));
  SCOPED_TRACE("PINFOLD_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 chance(seed);
  for (int round = 0; round < 200; ++round) {
    tool::workload of;
    const auto objects = 1 + chance() % 8;
    for (std::size_t i = 0; i < objects; ++i) {
      const auto bytes = 1 + chance() % 9;
      of.objects.push_back({.bytes = bytes, .room = bytes, .open_ns = 1});
    }
    for (auto left = 1 + chance() % 60; left > 0; --left)
      of.requests.push_back(static_cast<std::uint32_t>(chance() % objects));
    const tool::lru_curve curve(of);
    for (auto budget = largest(of); budget <= of.footprint() + 1; ++budget) {
      const auto expected = simulated(of, budget);
      ASSERT_EQ(curve.misses(budget), expected.misses) << budget;
      ASSERT_DOUBLE_EQ(curve.cost_ns(budget), expected.cost_ns) << budget;
    }
  }
}

TEST(lru_curve, finds_the_lowest_budget_for_a_number_of_misses) {
  tool::workload of;
  of.objects = {{10, 10, 1, 0}, {20, 20, 1, 0}, {30, 30, 1, 0}};
  of.requests = {0, 1, 0, 2, 1, 0};
  const tool::lru_curve curve(of);
  EXPECT_EQ(curve.misses(0), 6U);
  EXPECT_EQ(curve.budget_for(6), 0U);
  EXPECT_EQ(curve.budget_for(5), 30U) << "0 again after 1";
  EXPECT_EQ(curve.budget_for(3), 60U);
  EXPECT_EQ(curve.budget_for(2), curve.everything()) << "impossible";
  EXPECT_EQ(tool::lru_curve().misses(7), 0U);
}

}  // namespace
}  // namespace pinfold::testing::lru_curve_test
