// SPDX-License-Identifier: BSD-3-Clause
// Cuts ranges of any size into pieces that suit huge pages (R65).
#include "os/check.hpp"

#include <pinfold/detail/background.hpp>
#include <pinfold/detail/pages.hpp>

#include <algorithm>
#include <numeric>

namespace pinfold::detail {

namespace {

constexpr std::size_t large_page = std::size_t{2} << 20U;
constexpr std::size_t largest_page = std::size_t{1} << 30U;

// Returns the alignment of a piece's end: no piece ends inside a huge page that it could have covered alone.
std::size_t alignment_for(std::size_t each, const piece_limits& limits) noexcept {
  const auto most = std::min(each, limits.max_bytes);
  if (most >= largest_page) return largest_page;
  return most >= large_page ? large_page : limits.granularity;
}

/// A range, possibly joined from several, and the first position of these in the caller's list.
struct placed_range {
  range where;
  std::size_t place;
};

std::vector<placed_range> without_overlaps(std::span<const range> ranges) {
  std::vector<placed_range> all;
  all.reserve(ranges.size());
  for (std::size_t i = 0; i < ranges.size(); ++i) all.push_back({ranges[i], i});
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.where.begin < b.where.begin; });
  std::size_t last = 0;
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (!all[i].where.overlaps(all[last].where)) {
      all[++last] = all[i];
      continue;
    }
    all[last].where.end = std::max(all[last].where.end, all[i].where.end);
    all[last].place = std::min(all[last].place, all[i].place);
  }
  all.resize(std::min(all.size(), last + 1));
  return all;
}

// Refuses ranges that can never be registered as a whole, before any work that grows with their size.
result<void> check_size(engine* on, const std::vector<placed_range>& all, std::size_t each,
                        const piece_limits& limits) noexcept {
  const auto budget = limits_of(on);
  const auto most = std::min(each, limits.max_bytes);
  PINFOLD_ASSERT(most > 0, "a piece has a byte at least");
  std::size_t bytes = 0;
  std::size_t pieces = 0;
  for (const auto& one : all) {
    bytes += one.where.size();
    pieces += (one.where.size() - 1) / most + 1;
  }
  if (bytes > budget.max_bytes || pieces > budget.max_count)
    return fail(errc::larger_than_budget, "the range in its pieces exceeds the budget");
  if (pieces > most_pieces) return fail(errc::too_large, "the range has too many pieces");
  return {};
}

// Returns the numbers of the ranges in the order of registration.
std::vector<std::uint32_t> ordered(const std::vector<placed_range>& all, background_order order) {
  std::vector<std::uint32_t> numbers(all.size());
  std::iota(numbers.begin(), numbers.end(), 0U);
  std::sort(numbers.begin(), numbers.end(), [&](std::uint32_t a, std::uint32_t b) {
    const auto size_of_a = all[a].where.size();
    const auto size_of_b = all[b].where.size();
    if (order == background_order::largest_first && size_of_a != size_of_b) return size_of_a > size_of_b;
    return all[a].place < all[b].place;
  });
  return numbers;
}

// Checks the exact sums, which include rounding.
result<void> check_pieces(engine* on, const std::vector<range>& pieces, const piece_limits& limits) noexcept {
  const auto budget = limits_of(on);
  std::size_t bytes = 0;
  for (const range& one : pieces) bytes += aligned_out(one, limits.granularity).size();
  if (bytes > budget.max_bytes || pieces.size() > budget.max_count)
    return fail(errc::larger_than_budget, "the range in its pieces exceeds the budget");
  return {};
}

}  // namespace

result<background_plan> plan_pieces(engine* on, std::span<const range> ranges, std::size_t each,
                                    const piece_limits& limits, background_order order) {
  if (each == 0 || limits.max_bytes == 0) return fail(errc::invalid_argument, "a piece needs at least one byte");
  const auto all = without_overlaps(ranges);
  if (auto fits = check_size(on, all, each, limits); !fits) return tl::unexpected(fits.error());
  background_plan plan;
  std::vector<std::uint32_t> first(all.size() + 1);  // of each range: its first piece
  const piece_limits aligned{limits.max_bytes, alignment_for(each, limits)};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto pieces = cut(all[i].where, each, aligned);
    plan.pieces.insert(plan.pieces.end(), pieces.begin(), pieces.end());
    first[i + 1] = static_cast<std::uint32_t>(plan.pieces.size());
  }
  if (auto fits = check_pieces(on, plan.pieces, limits); !fits) return tl::unexpected(fits.error());
  plan.order.reserve(plan.pieces.size());
  for (const auto number : ordered(all, order))
    for (auto piece = first[number]; piece < first[number + 1]; ++piece) plan.order.push_back(piece);
  PINFOLD_ASSERT(plan.order.size() == plan.pieces.size(), "each piece has its place in the order");
  return plan;
}

}  // namespace pinfold::detail
