// SPDX-License-Identifier: BSD-3-Clause
#include "cli/suggestion.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace tool {
namespace {

constexpr std::size_t letters_of_a_prefix = 3;

// Returns how many letters must be inserted, removed, replaced, or swapped with the next one.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t k = 1; k <= b.size(); ++k) {
      row[k] = std::min({last[k] + 1, row[k - 1] + 1, last[k - 1] + (a[i - 1] == b[k - 1] ? 0 : 1)});
      const bool swapped = i > 1 && k > 1 && a[i - 1] == b[k - 2] && a[i - 2] == b[k - 1];
      if (swapped) row[k] = std::min(row[k], before[k - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last.back();
}

std::string only_name_with(std::string_view prefix, const std::vector<std::string>& names) {
  if (prefix.size() < letters_of_a_prefix) return {};
  const auto begins = [&](const std::string& name) { return name.starts_with(prefix); };
  return std::ranges::count_if(names, begins) == 1 ? *std::ranges::find_if(names, begins) : std::string();
}

}  // namespace

std::string nearest_name(std::string_view wrong, const std::vector<std::string>& names) {
  auto longer = only_name_with(wrong, names);
  if (!longer.empty() || names.empty()) return longer;
  const auto far = [&](const std::string& name) { return distance(wrong, name); };
  const auto& best = *std::ranges::min_element(names, {}, far);
  return far(best) <= std::max<std::size_t>(1, wrong.size() / 3) ? best : std::string();
}

}  // namespace tool
