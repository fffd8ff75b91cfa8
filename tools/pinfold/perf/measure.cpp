// SPDX-License-Identifier: BSD-3-Clause
#include "perf/measure.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tool {
namespace {

// Returns the smallest sample that at least this share of all samples does not exceed.
double percentile(const nanoseconds& sorted, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(sorted.size())));
  return static_cast<double>(sorted[std::max<std::size_t>(rank, 1) - 1]);
}

}  // namespace

latency summarise(nanoseconds samples) {
  if (samples.empty()) return {};
  std::sort(samples.begin(), samples.end());
  const auto sum = std::accumulate(samples.begin(), samples.end(), std::uint64_t{0});
  return {samples.size(), static_cast<double>(sum) / static_cast<double>(samples.size()), percentile(samples, 0.5),
          percentile(samples, 0.99), percentile(samples, 0.999)};
}

latency median_run(std::vector<latency> runs) { return median_by(std::move(runs), &latency::average); }

}  // namespace tool
