// SPDX-License-Identifier: BSD-3-Clause
#include "top/selection.hpp"

#include "top/figures.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <functional>
#include <string_view>
#include <tuple>

namespace tool::top {
namespace {

bool contains(std::string_view text, std::string_view part) {
  const auto same = [](unsigned char one, unsigned char other) { return std::tolower(one) == std::tolower(other); };
  return part.empty() || std::search(text.begin(), text.end(), part.begin(), part.end(), same) != text.end();
}

double p99_open(const cache_sample& one) {
  return static_cast<double>(quantile(sum_of(one.page.opens), 0.99).value_or(0));
}

// Of two numbers, the larger is first.
struct numeric_order {
  const char* name;
  double (*value)(const cache_sample& one);
};

double number(std::uint64_t count) { return static_cast<double>(count); }

constexpr std::initializer_list<numeric_order> numeric{
    {"requests", [](const cache_sample& one) { return per_second(one.since.acquires, one.seconds); }},
    {"bytes", [](const cache_sample& one) { return number(one.page.counters.bytes_now); }},
    {"entries", [](const cache_sample& one) { return number(one.page.counters.entries_now); }},
    {"hits", [](const cache_sample& one) { return -hit_rate(one.page.counters).value_or(2); }},
    {"misses", [](const cache_sample& one) { return per_second(one.since.misses, one.seconds); }},
    {"open", p99_open},
    {"evictions", [](const cache_sample& one) { return per_second(one.since.evicted, one.seconds); }},
    {"stale", [](const cache_sample& one) { return number(stale_prevented(one.page.counters)); }},
    {"waits", [](const cache_sample& one) { return number(count_of(one.page.waits)); }},
    {"failures", [](const cache_sample& one) { return number(failures(one.page.counters)); }},
};

void sort_by_numbers(sample& taken, double (*value)(const cache_sample& one)) {
  const auto key = [&](const cache_sample& one) { return std::tuple(-value(one), one.page.number); };
  for (auto& process : taken.processes) std::ranges::sort(process.caches, {}, key);
  std::ranges::sort(taken.processes, {}, [&](const process_sample& one) {
    return std::tuple(one.caches.empty(), one.caches.empty() ? 0 : -value(one.caches.front()), one.page.pid,
                      std::string_view(one.page.path));
  });
}

void sort_by_words(sample& taken, const std::string& order) {
  for (auto& process : taken.processes)
    std::ranges::sort(process.caches, {}, [&](const cache_sample& one) {
      return std::tuple(std::string_view(order == "cache" ? one.page.name : ""), one.page.number);
    });
  std::ranges::sort(taken.processes, {}, [&](const process_sample& one) {
    std::string_view word;
    if (order == "command") word = one.page.command;
    if (order == "cache" && !one.caches.empty()) word = one.caches.front().page.name;
    return std::tuple(word, one.page.pid, std::string_view(one.page.path));
  });
}

}  // namespace

const std::vector<std::string>& orders() {
  static const auto all = [] {
    std::vector<std::string> names;
    for (const auto& one : numeric) names.emplace_back(one.name);
    for (const auto* one : {"pid", "command", "cache"}) names.emplace_back(one);
    return names;
  }();
  return all;
}

void sort(sample& taken, const std::string& order) {
  for (const auto& one : numeric)
    if (order == one.name) return sort_by_numbers(taken, one.value);
  sort_by_words(taken, order);
}

void filter(sample& taken, const wanted& what) {
  std::erase_if(taken.processes, [&](process_sample& process) {
    const auto& page = process.page;
    const bool itself = contains(std::to_string(page.pid), what.text) || contains(page.command, what.text) ||
                        contains(name_of(page.state), what.text);
    const bool running = page.state != pinfold::observation::process_state::ended;
    std::erase_if(process.caches, [&](const cache_sample& one) {
      const bool matches = itself || contains(one.page.name, what.text) || contains(one.page.kind, what.text);
      return !matches || (one.page.ended && running && !what.ended);
    });
    return !itself && process.caches.empty();
  });
}

}  // namespace tool::top
