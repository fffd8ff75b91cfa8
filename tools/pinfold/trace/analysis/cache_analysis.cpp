// SPDX-License-Identifier: BSD-3-Clause
#include "trace/analysis/cache_analysis.hpp"

#include "trace/replay/policy.hpp"
#include "trace/replay/second_chance.hpp"

#include <algorithm>
#include <stdexcept>
#include <string_view>

namespace tool {
namespace {

constexpr std::array shares{0.0625, 0.125, 0.25, 0.5, 0.75, 1.0};  // of all registrations' room

void count_misses(const recorded_cache& of, cache_analysis& into) {
  into.requests = of.work.requests.size();
  into.misses = of.misses.size();
  for (const auto& one : of.misses) {
    auto& total = into.by_kind.at(static_cast<std::size_t>(one.kind));
    ++total.misses;
    total.opened_ns += static_cast<double>(one.opened_ns);
    into.opened_ns += static_cast<double>(one.opened_ns);
    into.longest_ns = std::max(into.longest_ns, one.opened_ns);
  }
  for (const auto& one : of.work.objects) {
    into.room += one.room;
    into.largest = std::max(into.largest, one.room);
  }
  into.registrations = of.work.objects.size();
  into.footprint = of.work.footprint();
}

std::vector<range_use> uses_of(const recorded_cache& of) {
  std::vector<range_use> uses(of.work.objects.size());
  for (std::uint32_t i = 0; i < uses.size(); ++i) uses[i].object = i;
  for (const auto one : of.work.requests) ++uses[one].requests;
  for (const auto& one : of.misses) {
    auto& use = uses[of.work.requests[one.request]];
    ++use.misses;
    use.opened_ns += static_cast<double>(one.opened_ns);
  }
  return uses;
}

void rank_ranges(const recorded_cache& of, std::size_t most, cache_analysis& into) {
  auto uses = uses_of(of);
  for (const auto& one : uses) {
    if (one.requests != 1) continue;
    ++into.once.registrations;
    into.once.bytes += of.work.objects[one.object].bytes;
    into.once.opened_ns += one.opened_ns;
  }
  const auto shown = std::min(most, uses.size());
  const auto costlier = [](const range_use& a, const range_use& b) noexcept {
    return a.opened_ns != b.opened_ns ? a.opened_ns > b.opened_ns : a.object < b.object;
  };
  std::partial_sort(uses.begin(), uses.begin() + static_cast<std::ptrdiff_t>(shown), uses.end(), costlier);
  uses.resize(shown);
  for (const auto& one : uses) into.ranges.push_back(of.registrations[one.object]);
  into.costliest = std::move(uses);
}

/// The windows, while the requests go by.
class window_counter {
 public:
  window_counter(const recorded_cache& of, const analysis_options& options)
      : of_(of),
        last_window_(of.work.objects.size(), 0),
        chooser_(of.work),
        played_(of.work, chooser_, options.budget.value_or(0)),
        plays_(options.budget.has_value()) {}

  request_window count(std::size_t first, std::size_t end) {
    ++number_;
    const auto evicted = played_.result().evictions;
    request_window made{.first = first, .requests = end - first};
    for (auto i = first; i < end; ++i) count(of_.work.requests[i], made);
    for (; miss_ < of_.misses.size() && of_.misses[miss_].request < end; ++miss_) {
      const auto& one = of_.misses[miss_];
      ++made.misses.at(static_cast<std::size_t>(one.kind));
      made.opened_ns += static_cast<double>(one.opened_ns);
    }
    made.evictions = played_.result().evictions - evicted;
    made.seen = seen_;
    return made;
  }

 private:
  void count(std::uint32_t object, request_window& into) {
    if (plays_) played_.request(object);
    if (last_window_[object] == number_) return;
    const auto room = of_.work.objects[object].room;
    if (last_window_[object] == 0) seen_ += room;
    last_window_[object] = number_;
    into.used += room;
  }

  const recorded_cache& of_;
  std::vector<std::uint32_t> last_window_;  // 0: none
  second_chance chooser_;
  simulation played_;
  bool plays_;
  std::uint32_t number_ = 0;
  std::size_t miss_ = 0;
  std::size_t seen_ = 0;
};

std::vector<request_window> windows_of(const recorded_cache& of, const analysis_options& options) {
  const auto total = of.work.requests.size();
  const auto number = std::min(options.windows, total);
  window_counter counter(of, options);
  std::vector<request_window> all;
  for (std::size_t i = 0; i < number; ++i) all.push_back(counter.count(total * i / number, total * (i + 1) / number));
  return all;
}

void choose_policies(const analysis_options& options, cache_analysis& into) {
  const auto number = into.requests <= options.compared_requests ? report_policies.size() : 1;
  into.policies.assign(report_policies.begin(), report_policies.begin() + number);
}

void replay_budgets(const workload& of, cache_analysis& into) {
  for (const auto share : shares) {
    const auto budget = static_cast<std::size_t>(static_cast<double>(into.room) * share);
    if (budget >= into.largest) into.what_if_budgets.push_back(budget);
  }
  if (into.budget) into.what_if_budgets.push_back(*into.budget);
  std::ranges::sort(into.what_if_budgets);
  const auto same = std::ranges::unique(into.what_if_budgets);
  into.what_if_budgets.erase(same.begin(), same.end());
  for (const auto budget : into.what_if_budgets) {
    for (const auto& known : all_policies()) {
      const std::string_view name(known.name);
      if (std::ranges::none_of(into.policies, [name](const char* one) { return name == one; })) continue;
      const auto chooser = known.make(of);
      into.what_ifs.push_back({budget, known.name, simulate(of, *chooser, budget)});
    }
  }
}

}  // namespace

const replay_result& cache_analysis::replayed(std::size_t with, const std::string& policy) const {
  const auto found =
      std::ranges::find_if(what_ifs, [&](const what_if& one) { return one.budget == with && one.policy == policy; });
  if (found == what_ifs.end()) throw std::out_of_range("no replay of " + policy);
  return found->result;
}

cache_analysis summarise(const recorded_cache& of) {
  cache_analysis made;
  made.name = of.work.name;
  count_misses(of, made);
  return made;
}

cache_analysis analyse(const recorded_cache& of, const analysis_options& options) {
  auto made = summarise(of);
  made.budget = options.budget;
  made.curve = lru_curve(of.work);
  rank_ranges(of, options.ranges, made);
  made.windows = windows_of(of, options);
  choose_policies(options, made);
  replay_budgets(of.work, made);
  return made;
}

}  // namespace tool
