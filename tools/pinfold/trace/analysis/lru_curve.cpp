// SPDX-License-Identifier: BSD-3-Clause
#include "trace/analysis/lru_curve.hpp"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

namespace tool {
namespace {

constexpr std::size_t never = std::numeric_limits<std::size_t>::max();

/// A Fenwick tree: sums of the room of the objects that were used last in a span of time.
class room_by_time {
 public:
  explicit room_by_time(std::size_t slots) : sums_(slots + 1) {}

  // Unsigned arithmetic wraps, so a subtraction is an addition.
  void add(std::size_t slot, std::size_t room) noexcept {
    for (auto i = slot + 1; i < sums_.size(); i += i & (~i + 1)) sums_[i] += room;
  }
  [[nodiscard]] std::size_t sum_before(std::size_t slot) const noexcept {
    std::size_t sum = 0;
    for (auto i = slot; i > 0; i -= i & (~i + 1)) sum += sums_[i];
    return sum;
  }
  void clear() noexcept { std::fill(sums_.begin(), sums_.end(), 0); }
  [[nodiscard]] std::size_t slots() const noexcept { return sums_.size() - 1; }

 private:
  std::vector<std::size_t> sums_;
};

/// The order in which objects were used last. Slots are numbered anew when all are taken, so that the memory depends on
/// the number of objects alone.
class recency {
 public:
  explicit recency(const workload& of)
      : of_(of), slots_(2 * of.objects.size() + 1), slot_of_(of.objects.size(), never), object_in_(slots_.slots()) {}

  // Returns the room of all objects that were used since the last use of `one`, its own included: the lowest budget
  // with which LRU still has it. `never` for the first use.
  std::size_t use(std::uint32_t one) {
    const auto room = of_.objects[one].room;
    const auto earlier = slot_of_[one];
    auto distance = never;
    if (earlier != never) {
      distance = used_ - slots_.sum_before(earlier);
      slots_.add(earlier, ~room + 1);
      used_ -= room;
      slot_of_[one] = never;
    }
    if (next_ == slots_.slots()) renumber();
    slots_.add(next_, room);
    used_ += room;
    object_in_[next_] = one;
    slot_of_[one] = next_++;
    return distance;
  }

 private:
  void renumber() {
    const auto taken = std::exchange(next_, 0);
    slots_.clear();
    for (std::size_t slot = 0; slot < taken; ++slot) {
      const auto one = object_in_[slot];
      if (slot_of_[one] != slot) continue;
      object_in_[next_] = one;
      slot_of_[one] = next_;
      slots_.add(next_++, of_.objects[one].room);
    }
  }

  const workload& of_;
  room_by_time slots_;
  std::vector<std::size_t> slot_of_;
  std::vector<std::uint32_t> object_in_;
  std::size_t next_ = 0;
  std::size_t used_ = 0;
};

// Rounds budgets up where a trace is long, so that its curve is short.
std::size_t grain_for(const workload& of, std::size_t everything) noexcept {
  constexpr std::size_t most_exact = std::size_t{1} << 20U;
  constexpr std::size_t grains = 4096;
  return of.requests.size() <= most_exact ? 1 : std::max<std::size_t>(everything / grains, 1);
}

/// The requests that are hits from some budget on.
struct saving {
  std::uint64_t misses = 0;
  double open_ns = 0;
};

}  // namespace

lru_curve::lru_curve(const workload& of) {
  for (const auto& one : of.objects) everything_ += one.room;
  const auto grain = grain_for(of, everything_);
  recency order(of);
  std::unordered_map<std::size_t, saving> by_budget;
  step now{0, of.requests.size(), 0};
  for (const auto one : of.requests) {
    const auto distance = order.use(one);
    now.cost_ns += of.objects[one].open_ns;
    if (distance == never) continue;
    auto& saved = by_budget[std::min((distance + grain - 1) / grain * grain, everything_)];
    ++saved.misses;
    saved.open_ns += of.objects[one].open_ns;
  }
  std::vector<std::pair<std::size_t, saving>> sorted(by_budget.begin(), by_budget.end());
  std::ranges::sort(sorted, {}, [](const auto& one) noexcept { return one.first; });
  steps_.push_back(now);
  for (const auto& [budget, saved] : sorted) {
    now = {budget, now.misses - saved.misses, now.cost_ns - saved.open_ns};
    steps_.push_back(now);
  }
}

const lru_curve::step& lru_curve::at(std::size_t budget) const noexcept {
  const auto after = std::ranges::upper_bound(steps_, budget, {}, [](const step& one) noexcept { return one.budget; });
  return *(after - 1);
}

std::uint64_t lru_curve::misses(std::size_t budget) const noexcept { return at(budget).misses; }

double lru_curve::cost_ns(std::size_t budget) const noexcept { return at(budget).cost_ns; }

std::size_t lru_curve::budget_for(std::uint64_t misses) const noexcept {
  const auto found = std::ranges::find_if(steps_, [misses](const step& one) { return one.misses <= misses; });
  return found == steps_.end() ? everything_ : found->budget;
}

}  // namespace tool
