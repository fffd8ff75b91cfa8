// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Numbers in at most five characters, rounded down, and texts cut to fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tool::top {

/// Formats 1234567 as `1234k`.
[[nodiscard]] std::string short_count(std::uint64_t number);

/// Formats 1610612736 as `1.5G`; 2^64 - 1, which stands for unlimited, as `-`.
[[nodiscard]] std::string short_size(std::uint64_t bytes);

/// Formats nanoseconds with a unit, such as `1.2ms`; nothing as `-`.
[[nodiscard]] std::string short_time(std::optional<std::uint64_t> ns);

/// Formats a rate with a decimal where it is small.
[[nodiscard]] std::string short_rate(double rate);

/// Formats a share of 1 in percent, with a decimal; 100 only if it is the whole. Nothing as `-`.
[[nodiscard]] std::string short_percent(std::optional<double> share);

/// Returns the text if it is not longer than `width`; else its begin with a `~`.
[[nodiscard]] std::string cut(std::string_view text, std::size_t width);

/// Returns the text with blanks up to `width`, cut if it is longer.
[[nodiscard]] std::string left(std::string_view text, std::size_t width);
[[nodiscard]] std::string right(std::string_view text, std::size_t width);

}  // namespace tool::top
