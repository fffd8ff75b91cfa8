// SPDX-License-Identifier: BSD-3-Clause
#include "top/json_text.hpp"

#include "cli/page_failure.hpp"
#include "top/figures.hpp"

#include <pinfold/error.hpp>
#include <pinfold/observation/counters.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fmt/format.h>
#include <optional>
#include <utility>
#include <vector>

namespace tool::top {
namespace {

using pinfold::observation::histogram;

template <class T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}

json limit(std::uint64_t value) { return value == UINT64_MAX ? json(nullptr) : json(value); }

json counters_of(const pinfold::statistics& from) {
  const auto values = pinfold::observation::values_of(from);
  json all = json::object();
  for (std::size_t i = 0; i < pinfold::observation::counters.size(); ++i) {
    const auto& one = pinfold::observation::counters[i];
    all[one.field == nullptr ? "waited_ns" : one.name] = values[i];
  }
  return all;
}

// Without the empty buckets at the end: most histograms are short.
json json_of(const histogram& from) {
  std::size_t used = from.counts.size();
  while (used > 0 && from.counts[used - 1] == 0) --used;
  return {{"counts",
           std::vector<std::uint64_t>(from.counts.begin(), from.counts.begin() + static_cast<std::ptrdiff_t>(used))},
          {"sum", from.sum},
          {"largest", from.largest},
          {"p50", or_null(quantile(from, 0.5))},
          {"p99", or_null(quantile(from, 0.99))}};
}

json limit_of_class(std::size_t which) {
  const auto largest = pinfold::observation::largest_of_class(which);
  return largest == 0 ? json(nullptr) : json(largest);
}

json by_class(const std::array<histogram, pinfold::observation::size_classes>& from) {
  json all = json::array();
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (count_of(from[i]) == 0) continue;
    json one = json::object();
    one["largest_bytes"] = limit_of_class(i);
    one.update(json_of(from[i]));
    all.push_back(std::move(one));
  }
  return all;
}

json errors_of(const std::vector<pinfold::observation::error_record>& from) {
  json all = json::array();
  for (const auto& one : from) {
    const auto what = error_of(one);
    all.push_back({{"call", name_of(static_cast<pinfold::observation::driver_call>(one.call))},
                   {"code", pinfold::name_of(what.code)},
                   {"native", one.native},
                   {"text", pinfold::describe(what)},
                   {"begin", fmt::format("{:#x}", one.begin)},
                   {"end", fmt::format("{:#x}", one.end)}});
  }
  return all;
}

json calls_of(const std::vector<pinfold::observation::slow_call>& from) {
  json all = json::array();
  for (const auto& one : from)
    all.push_back({{"duration_ns", one.duration},
                   {"begin", fmt::format("{:#x}", one.begin)},
                   {"end", fmt::format("{:#x}", one.end)}});
  return all;
}

json json_of(const cache_sample& from) {
  const auto& page = from.page;
  const auto opens = sum_of(page.opens);
  return {{"number", page.number},
          {"name", page.name},
          {"registrar", page.kind},
          {"monitors", page.monitors},
          {"ended", page.ended},
          {"shards", page.shards},
          {"age_s", std::chrono::duration<double>(page.age).count()},
          {"max_bytes", limit(page.max_bytes)},
          {"max_count", limit(page.max_count)},
          {"interval_s", from.seconds},
          {"hit_rate", or_null(hit_rate(page.counters))},
          {"hit_rate_of_interval", or_null(hit_rate(from.since))},
          {"requests_per_s", per_second(from.since.acquires, from.seconds)},
          {"misses_per_s", per_second(from.since.misses, from.seconds)},
          {"evictions_per_s", per_second(from.since.evicted, from.seconds)},
          {"open_p50_ns", or_null(quantile(opens, 0.5))},
          {"open_p99_ns", or_null(quantile(opens, 0.99))},
          {"stale_prevented", stale_prevented(page.counters)},
          {"waits", count_of(page.waits)},
          {"failures", failures(page.counters)},
          {"counters", counters_of(page.counters)},
          {"miss_ns", by_class(page.misses)},
          {"open_ns", by_class(page.opens)},
          {"close_ns", by_class(page.closes)},
          {"age_at_eviction_ns", json_of(page.age_at_eviction)},
          {"idle_at_eviction_ns", json_of(page.idle_at_eviction)},
          {"hits_of_evicted_times_128", json_of(page.hits_of_evicted)},
          {"wait_ns", json_of(page.waits)},
          {"errors_written", page.errors_written},
          {"last_errors", errors_of(page.errors)},
          {"slowest_opens", calls_of(page.slowest_opens)},
          {"slowest_closes", calls_of(page.slowest_closes)}};
}

json json_of(const process_sample& from) {
  const auto& page = from.page;
  json caches = json::array();
  for (const auto& one : from.caches) caches.push_back(json_of(one));
  return {{"pid", page.pid},
          {"command", page.command},
          {"state", name_of(page.state)},
          {"path", page.path},
          {"library", page.library},
          {"user", page.user},
          {"age_s", std::chrono::duration<double>(page.age).count()},
          {"since_published_s", std::chrono::duration<double>(page.since_published).count()},
          {"memlock_limit", limit(page.memlock_limit)},
          {"bytes", from.held.bytes},
          {"budget", limit(from.held.budget)},
          {"caches_made", page.caches_made},
          {"caches_unlisted", page.caches_unlisted},
          {"ranges_gone", page.ranges_gone},
          {"events_written", page.events_written},
          {"caches", std::move(caches)}};
}

}  // namespace

json json_of(const sample& taken) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  json processes = json::array();
  for (const auto& one : taken.processes) processes.push_back(json_of(one));
  json unreadable = json::array();
  for (const auto& one : taken.unreadable) unreadable.push_back({{"path", one.path}, {"why", one.why}});
  return {{"time_s", std::chrono::duration<double>(now).count()},
          {"reading_s", std::chrono::duration<double>(taken.reading).count()},
          {"processes", std::move(processes)},
          {"unreadable", std::move(unreadable)}};
}

}  // namespace tool::top
