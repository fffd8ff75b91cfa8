// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The charts of one cache.
#pragma once

#include "trace/analysis/cache_analysis.hpp"
#include "trace/report/chart.hpp"

#include <string>

namespace tool {

/// Returns the misses over the requests, by kind. `id` is the cache's, in the page.
[[nodiscard]] chart misses_chart(const cache_analysis& of, const std::string& id);

/// Returns the time in the driver over the requests.
[[nodiscard]] chart driver_chart(const cache_analysis& of, const std::string& id);

/// Returns the room of the registrations that requests use, and have used, over the requests, with the budget.
[[nodiscard]] chart working_set_chart(const cache_analysis& of, const std::string& id, bool in_entries);

/// Returns the misses by budget: LRU's for every budget, and each policy's for those that were replayed.
[[nodiscard]] chart budgets_chart(const cache_analysis& of, const std::string& id, bool in_entries);

/// Returns the word for a kind of miss, for people.
[[nodiscard]] const char* word_for(miss_kind kind) noexcept;

}  // namespace tool
