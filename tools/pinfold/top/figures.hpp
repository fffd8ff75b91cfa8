// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What a cache's counters and histograms come to.
#pragma once

#include "top/sample.hpp"

#include <pinfold/observation/layout.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tool::top {

/// Returns the share of hits among acquires that succeeded, 0 to 1; nothing if there was none.
[[nodiscard]] std::optional<double> hit_rate(const pinfold::statistics& of);

/// Returns a growth by the second; 0 if no time passed.
[[nodiscard]] double per_second(std::uint64_t growth, double seconds);

/// Returns how many stale registrations or imports requests met and did not get: the larger of `invalid` and
/// `misses_invalidated`, as an acquire that meets a different token counts in both.
[[nodiscard]] std::uint64_t stale_prevented(const pinfold::statistics& of);

/// Returns how many acquires, closes and monitors failed. An open that failed and was retried is none.
[[nodiscard]] std::uint64_t failures(const pinfold::statistics& of);

/// Returns the sum of histograms, and how many values one has.
[[nodiscard]] pinfold::observation::histogram sum_of(std::span<const pinfold::observation::histogram> all);
[[nodiscard]] std::uint64_t count_of(const pinfold::observation::histogram& one);

/// Returns the value that a share of all values is below, 0 to 1, to within a power of two; nothing for an empty
/// histogram.
[[nodiscard]] std::optional<std::uint64_t> quantile(const pinfold::observation::histogram& of, double share);

/// Returns what the caches come to.
[[nodiscard]] holdings holdings_of(const std::vector<cache_sample>& caches);

/// Returns the state's name.
[[nodiscard]] const char* name_of(pinfold::observation::process_state state) noexcept;

/// Returns the call's name.
[[nodiscard]] const char* name_of(pinfold::observation::driver_call call) noexcept;

}  // namespace tool::top
