// SPDX-License-Identifier: BSD-3-Clause
#include "top/figures.hpp"

#include <algorithm>
#include <cmath>

namespace tool::top {
namespace {

using pinfold::observation::histogram;

// Damaged pages may have values whose sum has no room.
std::uint64_t sum(std::uint64_t one, std::uint64_t other) { return one + std::min(other, UINT64_MAX - one); }

}  // namespace

std::optional<double> hit_rate(const pinfold::statistics& of) {
  const auto all = sum(of.hits, of.misses);
  return all == 0 ? std::nullopt : std::optional(static_cast<double>(of.hits) / static_cast<double>(all));
}

double per_second(std::uint64_t growth, double seconds) {
  return seconds > 0 ? static_cast<double>(growth) / seconds : 0;
}

std::uint64_t stale_prevented(const pinfold::statistics& of) { return std::max(of.invalid, of.misses_invalidated); }

std::uint64_t failures(const pinfold::statistics& of) {
  return sum(sum(of.failed_acquires, of.failed_closes), of.monitor_failures);
}

histogram sum_of(std::span<const histogram> all) {
  histogram made{};
  for (const auto& one : all) {
    for (std::size_t i = 0; i < made.counts.size(); ++i) made.counts[i] = sum(made.counts[i], one.counts[i]);
    made.sum = sum(made.sum, one.sum);
    made.largest = std::max(made.largest, one.largest);
  }
  return made;
}

std::uint64_t count_of(const histogram& one) {
  std::uint64_t all = 0;
  for (const auto count : one.counts) all = sum(all, count);
  return all;
}

// Values are taken to be spread evenly over their bucket, the largest of which ends at the largest value.
std::optional<std::uint64_t> quantile(const histogram& of, double share) {
  const auto all = static_cast<double>(count_of(of));
  if (all == 0) return std::nullopt;
  double below = 0;
  for (std::size_t i = 0; i < of.counts.size(); ++i) {
    const auto here = static_cast<double>(of.counts[i]);
    if (here > 0 && below + here >= all * share) {
      const auto from = static_cast<double>(i == 0 ? 0 : pinfold::observation::limit_of_bucket(i - 1));
      const auto limit = pinfold::observation::limit_of_bucket(i);
      const auto largest = static_cast<double>(of.largest);
      const auto to = std::max(from, limit == 0 ? largest : std::min(static_cast<double>(limit), largest));
      const auto value = from + (to - from) * (all * share - below) / here;
      return value < 0x1p63 ? static_cast<std::uint64_t>(std::llround(value)) : UINT64_MAX;
    }
    below += here;
  }
  return of.largest;
}

holdings holdings_of(const std::vector<cache_sample>& caches) {
  holdings found;
  std::uint64_t budget = 0;
  for (const auto& one : caches) {
    ++(one.page.ended ? found.ended : found.running);
    if (one.page.ended) continue;
    found.bytes = sum(found.bytes, sum(one.page.counters.bytes_now, one.page.counters.bypass_bytes));
    budget = sum(budget, one.page.max_bytes);
  }
  if (found.running > 0) found.budget = budget;
  return found;
}

const char* name_of(pinfold::observation::process_state state) noexcept {
  using enum pinfold::observation::process_state;
  switch (state) {
    case running: return "running";
    case stopped: return "stopped";
    case ended: return "ended";
    case unknown: return "unknown";
  }
  return "unknown";
}

const char* name_of(pinfold::observation::driver_call call) noexcept {
  using enum pinfold::observation::driver_call;
  switch (call) {
    case open: return "open";
    case close: return "close";
    case monitor: return "monitor";
    case acquire: return "acquire";
  }
  return "call";
}

}  // namespace tool::top
