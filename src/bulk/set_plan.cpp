// SPDX-License-Identifier: BSD-3-Clause
#include "os/check.hpp"

#include <pinfold/detail/set_plan.hpp>
#include <pinfold/detail/together.hpp>

#include <algorithm>
#include <numeric>
#include <utility>

namespace pinfold::detail {

namespace {

// Makes one tier of the near choices, then a tier for each greater distance.
void order_by_distance(set_plan& plan, std::span<const std::uint32_t> distances, std::uint32_t margin) {
  PINFOLD_ASSERT(!plan.order.empty() && distances.size() == plan.order.size(), "each choice has a distance");
  std::sort(plan.order.begin(), plan.order.end(), [&](std::size_t one, std::size_t other) {
    return std::pair(distances[one], one) < std::pair(distances[other], other);
  });
  plan.ends.clear();
  const auto nearest = distances[plan.order.front()];
  auto reach = nearest > UINT32_MAX - margin ? UINT32_MAX : nearest + margin;
  for (std::size_t i = 0; i < plan.order.size(); ++i) {
    const auto here = distances[plan.order[i]];
    if (here <= reach) continue;
    plan.ends.push_back(i);
    reach = here;
  }
  plan.ends.push_back(plan.order.size());
}

// Asks the members of a tier that have to register, all at once or in turn.
void acquire_tier(const set_plan& plan, const set_calls& calls, const std::vector<std::size_t>& missing) {
  auto acquire_one = [&](std::size_t which) noexcept { calls.acquire(calls.self, missing[which]); };
  if (plan.parallel) return run_together(missing.size(), acquire_one);
  for (std::size_t i = 0; i < missing.size(); ++i) {
    acquire_one(i);
    if (!plan.may_fail && calls.failed(calls.self, missing[i]) != nullptr) return;
  }
}

const error* first_failure(const set_plan& plan, const set_calls& calls) noexcept {
  for (std::size_t choice = 0; choice < plan.order.size(); ++choice)
    if (const error* why = calls.failed(calls.self, choice)) return why;
  return nullptr;
}

std::size_t ask_tier(const set_plan& plan, const set_calls& calls, std::span<const std::size_t> tier) {
  std::vector<std::size_t> missing;
  missing.reserve(tier.size());  // before the first lease
  for (const std::size_t choice : tier)
    if (!calls.find(calls.self, choice)) missing.push_back(choice);
  acquire_tier(plan, calls, missing);
  return static_cast<std::size_t>(std::count_if(
      tier.begin(), tier.end(), [&](std::size_t choice) { return calls.failed(calls.self, choice) == nullptr; }));
}

}  // namespace

result<set_plan> plan_set(const set_options& how, std::size_t choices, std::span<const std::uint32_t> distances) {
  if (how.policy > set_policy::fixed_order) return fail(errc::invalid_argument, "the set has no such policy");
  set_plan plan;
  plan.parallel = how.policy != set_policy::fixed_order;
  plan.may_fail = how.required != every_member;
  if (plan.may_fail && (how.required == 0 || how.required > choices))
    return fail(errc::invalid_argument, "the number of members that must succeed is 0, or more than are chosen");
  plan.order.resize(choices);
  std::iota(plan.order.begin(), plan.order.end(), std::size_t{0});
  plan.ends = {choices};
  if (how.policy == set_policy::near_first) order_by_distance(plan, distances, how.near_margin);
  plan.required = plan.may_fail ? how.required : plan.ends.front();
  return plan;
}

result<void> ask_members(const set_plan& plan, const set_calls& calls) {
  std::size_t begin = 0;
  std::size_t succeeded = 0;
  for (const std::size_t end : plan.ends) {
    if (begin > 0 && succeeded >= plan.required) break;  // farther tiers are asked only when needed
    PINFOLD_ASSERT(begin <= end && end <= plan.order.size(), "the tiers follow one another");
    succeeded += ask_tier(plan, calls, std::span(plan.order).subspan(begin, end - begin));
    begin = end;
    if (!plan.may_fail) break;
  }
  const error* const why = first_failure(plan, calls);
  if (why == nullptr || (plan.may_fail && succeeded >= plan.required)) return {};
  return tl::unexpected(*why);
}

}  // namespace pinfold::detail
