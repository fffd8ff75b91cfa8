// SPDX-License-Identifier: BSD-3-Clause
// Each policy does what its name says, and evicts only cached objects.
#include "trace/replay/density_classes.hpp"
#include "trace/replay/lru.hpp"
#include "trace/replay/offline.hpp"
#include "trace/replay/policy.hpp"
#include "trace/replay/second_chance.hpp"
#include "trace/replay/sieve.hpp"
#include "trace/replay/simulate.hpp"

#include "support/host/settings.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace pinfold::testing::policies_test {
namespace {

using tool::policy;
using tool::replay_object;
using tool::workload;

workload alike(std::size_t objects, std::vector<std::uint32_t> requests) {
  workload made;
  made.objects.assign(objects, {.bytes = 1, .room = 1, .open_ns = 1});
  made.requests = std::move(requests);
  return made;
}

workload random_one(std::mt19937_64& chance, std::size_t objects, std::size_t requests, bool same) {
  workload made;
  for (std::size_t i = 0; i < objects; ++i) {
    const std::size_t bytes = same ? 1 : 1 + chance() % 20;
    made.objects.push_back({bytes, bytes, same ? 1.0 : static_cast<double>(1 + chance() % 1000), 0});
  }
  for (std::size_t i = 0; i < requests; ++i)
    made.requests.push_back(static_cast<std::uint32_t>(std::min(chance() % objects, chance() % objects)));
  return made;
}

/// Returns the objects in the order in which they were evicted.
template <class P>
std::vector<policy::object> evicted(const workload& of, std::size_t budget) {
  struct listening : P {
    using P::P;
    policy::object victim() override {
      gone.push_back(P::victim());
      return gone.back();
    }
    std::vector<policy::object> gone;
  };
  listening chooser(of);
  static_cast<void>(tool::simulate(of, chooser, budget));
  return chooser.gone;
}

using objects = std::vector<policy::object>;

TEST(policies, lru_evicts_the_least_recently_used) {
  EXPECT_EQ(evicted<tool::lru>(alike(5, {0, 1, 2, 0, 3, 4}), 3), (objects{1, 2}));
}

TEST(policies, second_chance_spares_used_entries) {
  EXPECT_EQ(evicted<tool::second_chance>(alike(5, {0, 1, 2, 0, 3, 4}), 3), (objects{1, 2}));
  EXPECT_EQ(evicted<tool::second_chance>(alike(6, {0, 1, 2, 0, 3, 4, 5}), 3), (objects{1, 2, 0}));
}

// With room for three: 0 survives in its place, the hand goes on behind it, and meets new objects first.
TEST(policies, sieve_leaves_survivors_in_their_place) {
  EXPECT_EQ(evicted<tool::sieve>(alike(7, {0, 1, 2, 0, 3, 4, 5, 6}), 3), (objects{1, 2, 3, 4}));
}

TEST(policies, lru_agrees_with_a_list) {
  std::mt19937_64 chance(test_seed());
  for (int round = 0; round < 20; ++round) {
    const auto of = random_one(chance, 40, 2000, true);
    tool::lru chooser(of);
    std::list<std::uint32_t> recent;
    std::uint64_t misses = 0;
    for (const auto one : of.requests) {
      const auto found = std::find(recent.begin(), recent.end(), one);
      if (found != recent.end()) {
        recent.erase(found);
      } else {
        ++misses;
        if (recent.size() == 10) recent.pop_back();
      }
      recent.push_front(one);
    }
    EXPECT_EQ(tool::simulate(of, chooser, 10).misses, misses);
  }
}

/// Returns the fewest misses from request `at` on, by trying everything.
std::uint64_t fewest_misses(const workload& of, std::size_t at, const objects& cached, std::size_t room) {
  if (at == of.requests.size()) return 0;
  const auto wanted = of.requests[at];
  if (std::find(cached.begin(), cached.end(), wanted) != cached.end()) return fewest_misses(of, at + 1, cached, room);
  auto with = cached;
  with.push_back(wanted);
  if (with.size() <= room) return 1 + fewest_misses(of, at + 1, with, room);
  std::uint64_t best = UINT64_MAX;
  for (std::size_t i = 0; i + 1 < with.size(); ++i) {
    auto without = with;
    without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
    best = std::min(best, 1 + fewest_misses(of, at + 1, without, room));
  }
  return best;
}

TEST(policies, offline_has_the_fewest_misses_with_equal_costs) {
  std::mt19937_64 chance(test_seed());
  for (int round = 0; round < 200; ++round) {
    const auto of = random_one(chance, 6, 14, true);
    tool::offline chooser(of);
    EXPECT_EQ(tool::simulate(of, chooser, 3).misses, fewest_misses(of, 0, {}, 3));
  }
}

/// A policy that checks that the inner policy evicts only cached objects, and that the budget holds.
class watched : public policy {
 public:
  watched(const workload& of, policy& inner, std::size_t budget)
      : of_(of), inner_(inner), budget_(budget), cached_(of.objects.size()) {}
  void hit(object one) override {
    ASSERT_TRUE(cached_[one]);
    inner_.hit(one);
  }
  void insert(object one) override {
    ASSERT_FALSE(cached_[one]);
    cached_[one] = true;
    used_ += of_.objects[one].room;
    ASSERT_LE(used_, budget_);
    inner_.insert(one);
  }
  object victim() override {
    const auto one = inner_.victim();
    EXPECT_TRUE(cached_[one]) << one;
    cached_[one] = false;
    used_ -= of_.objects[one].room;
    return one;
  }

 private:
  const workload& of_;
  policy& inner_;
  std::size_t budget_;
  std::size_t used_ = 0;
  std::vector<bool> cached_;
};

TEST(policies, each_policy_evicts_only_cached_objects) {
  std::mt19937_64 chance(test_seed());
  for (const auto& how : tool::all_policies()) {
    for (const bool same : {true, false}) {
      for (const std::size_t budget : {std::size_t{1}, std::size_t{25}, std::size_t{300}}) {
        const auto of = random_one(chance, 100, 5000, same);
        const auto inner = how.make(of);
        watched chooser(of, *inner, budget);
        const auto seen = tool::simulate(of, chooser, budget);
        EXPECT_EQ(seen.hits + seen.misses, of.requests.size()) << how.name;
        EXPECT_LE(seen.evictions, seen.misses) << how.name;
      }
    }
  }
}

TEST(policies, no_policy_has_fewer_misses_than_offline_with_equal_costs) {
  std::mt19937_64 chance(test_seed());
  const auto of = random_one(chance, 200, 20000, true);
  const auto misses = [&](const tool::known_policy& how) { return tool::simulate(of, *how.make(of), 50).misses; };
  const auto best = misses(tool::all_policies().back());
  ASSERT_STREQ(tool::all_policies().back().name, "offline");
  for (const auto& how : tool::all_policies()) EXPECT_GE(misses(how), best) << how.name;
}

// Large and cheap objects against small and expensive ones: the policies that know costs keep the small ones.
TEST(policies, cost_aware_policies_pay_less) {
  workload of;
  for (int i = 0; i < 64; ++i) of.objects.push_back({1, 1, 1000, 0});
  for (int i = 0; i < 64; ++i) of.objects.push_back({16, 16, 10, 0});
  std::mt19937_64 chance(1);
  for (int i = 0; i < 20000; ++i) of.requests.push_back(static_cast<std::uint32_t>(chance() % of.objects.size()));
  const auto cost = [&](const std::string& name) {
    for (const auto& how : tool::all_policies())
      if (name == how.name) return tool::simulate(of, *how.make(of), 256).cost_ns;
    ADD_FAILURE() << name;
    return 0.0;
  };
  for (const char* name : {"classes-2", "offline"}) EXPECT_LT(cost(name), 0.5 * cost("lru")) << name;
}

// Where all costs are equal and no frequencies count there is one queue, and the policy is second chance.
TEST(policies, classes_agree_with_second_chance_with_equal_costs) {
  std::mt19937_64 chance(test_seed());
  const auto of = random_one(chance, 500, 50000, true);
  tool::second_chance own(of);
  tool::density_classes classes(of, 0);
  EXPECT_EQ(tool::simulate(of, own, 200).misses, tool::simulate(of, classes, 200).misses);
}

}  // namespace
}  // namespace pinfold::testing::policies_test
