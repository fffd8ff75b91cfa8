// SPDX-License-Identifier: BSD-3-Clause
#include "top/bars.hpp"

#include "top/short_text.hpp"

#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <utility>

namespace tool::top {
namespace {

constexpr std::size_t longest_bar = 100;

std::string limit_text(std::uint64_t limit, value_of_bar kind) {
  return kind == value_of_bar::hits ? short_count(limit / 128) : short_time(limit);
}

// Hits are whole numbers: the bucket that ends at 2 holds 1 alone.
std::string values_of_bucket(std::size_t which, value_of_bar kind) {
  const auto from = which == 0 ? 0 : pinfold::observation::limit_of_bucket(which - 1);
  const auto limit = pinfold::observation::limit_of_bucket(which);
  if (limit == 0) return fmt::format("{:>6} or more   ", limit_text(from, kind));
  if (kind == value_of_bar::hits && limit - from <= 128) return fmt::format("{:>6}           ", from / 128);
  return fmt::format("{:>6} to {:>7}", limit_text(from, kind),
                     kind == value_of_bar::hits ? limit_text(limit - 1, kind) : "<" + limit_text(limit, kind));
}

}  // namespace

std::vector<std::string> bars_of(const pinfold::observation::histogram& of, value_of_bar kind, std::size_t width) {
  std::vector<std::string> lines;
  const auto used = [](std::uint64_t count) { return count != 0; };
  const auto first = std::ranges::find_if(of.counts, used);
  if (first == of.counts.end()) return lines;
  const auto last = std::find_if(of.counts.rbegin(), of.counts.rend(), used).base();
  const auto most = static_cast<double>(*std::max_element(first, last));
  for (auto at = first; at != last; ++at) {
    auto head = fmt::format("  {} {:>6} ", values_of_bucket(static_cast<std::size_t>(at - of.counts.begin()), kind),
                            short_count(*at));
    const auto room = std::min(longest_bar, width - std::min(width, head.size()));
    auto bar = static_cast<std::size_t>(static_cast<double>(*at) / most * static_cast<double>(room));
    if (*at != 0) bar = std::clamp<std::size_t>(bar, 1, std::max<std::size_t>(room, 1));
    lines.push_back(std::move(head) + std::string(bar, '#'));
  }
  return lines;
}

}  // namespace tool::top
