// SPDX-License-Identifier: BSD-3-Clause
// The policy called second-chance here does the same as the real cache, miss by miss.
#include "support/host/sanitized.hpp"
#include "trace/replay/second_chance.hpp"
#include "trace/replay/simulate.hpp"
#include "trace/replay/synthetic.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/registrars/null.hpp>

#include <gtest/gtest.h>

#include <string>

namespace pinfold::testing::own_policy_test {
namespace {

cache_options with_budget(std::size_t bytes, std::size_t count, std::uint32_t shards) {
  cache_options options;
  options.monitor = monitor_choice::manual;
  options.max_bytes = bytes;
  options.max_count = count;
  options.shards = shards;
  return options;
}

// Plays the workload on a real cache. Registrations never overlap: each has 64 MiB of addresses for itself.
statistics play(const tool::workload& of, cache_options options) {
  cache really(null_registrar{}, std::move(options));
  for (const auto one : of.requests) {
    auto* const address = reinterpret_cast<void*>((std::uintptr_t{one} + 1) << 26);
    const auto held = really.acquire(address, of.objects[one].bytes);
    EXPECT_TRUE(held) << describe(held.error());
  }
  return really.statistics();
}

void expect_same(tool::workload of, std::size_t share, bool in_entries) {
  tool::count_room(of, in_entries);
  const auto budget = (in_entries ? of.objects.size() : of.footprint()) / share;
  const auto budget_in_entries = of.objects.size() / share;
  tool::second_chance ours(of);
  const auto simulated = tool::simulate(of, ours, budget);
  const auto play_in = [&](std::uint32_t shards) {
    return play(of, in_entries ? with_budget(unlimited, budget, shards) : with_budget(budget, unlimited, shards));
  };
  const auto real = play_in(1);
  EXPECT_GT(simulated.evictions, 0U);
  EXPECT_EQ(real.misses, simulated.misses) << of.name << " 1/" << share;
  EXPECT_EQ(real.evicted, simulated.evictions) << of.name << " 1/" << share;
  // The hand goes round in each shard alone: the hit rate stays within 1 %, also with far fewer entries in a shard than
  // a cache has by itself, which would not divide a budget as small as these.
  if (budget_in_entries < 1000) return;
  const auto divided = play_in(8);
  EXPECT_NEAR(static_cast<double>(divided.hits), static_cast<double>(real.hits),
              0.01 * static_cast<double>(of.requests.size()))
      << of.name << " 1/" << share;
}

TEST(own_policy, simulation_misses_where_the_cache_misses) {
  for (const auto& one : tool::all_synthetic()) {
    auto of = one.make(tool::all_cost_models().front(), 1);
    of.name = one.name;
    of.requests.resize(thread_sanitized ? 20'000 : 60'000);  // on one thread
    for (const std::size_t share : {2U, 10U, 100U}) {
      expect_same(of, share, false);
      expect_same(of, share, true);
    }
  }
}

}  // namespace
}  // namespace pinfold::testing::own_policy_test
