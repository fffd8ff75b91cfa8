// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Cache options as text: environment variables with the prefix `PINFOLD_`, or a file of the same assignments.
///
/// The library does not read them by itself: a program that wants them calls `options_from_environment`. The exception
/// is PINFOLD_TRACE, which is not a cache option: every cache obeys it (`trace_file.hpp`).
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/options.hpp>

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace pinfold {

/// Parses a number of bytes or of things: digits, perhaps with a fraction, then K, M, G or T for powers of 1024, or
/// `unlimited`. A unit may be in lower case, may follow a blank, and may end in B or iB: `64M`, `4 KiB`, `1.5GiB`. A
/// fraction is rounded to a whole byte. Returns `invalid_argument` for any other text, and on overflow.
[[nodiscard]] PINFOLD_EXPORT result<std::size_t> parse_size(std::string_view text) noexcept;

/// Parses a duration: digits, perhaps with a fraction, then ns, us, ms, s, min or h, as in `100ms` or `1.5 s`. Without
/// a unit, the number counts `usual`, which must be positive. A fraction is rounded to a whole nanosecond. Returns
/// `invalid_argument` for any other text, and on overflow.
[[nodiscard]] PINFOLD_EXPORT result<std::chrono::nanoseconds> parse_duration(std::string_view text,
                                                                             std::chrono::nanoseconds usual) noexcept;

/// An error in a setting, and its place.
struct settings_error {
  error cause;        ///< what is wrong
  std::string where;  ///< the variable or file and line, and the refused text
};

/// Returns `base`, changed by the assignments in `text`. Each line is `PINFOLD_NAME=value`, a comment after `#`, or
/// blank. `origin` names the text in errors. An unknown name is an error.
[[nodiscard]] PINFOLD_EXPORT tl::expected<cache_options, settings_error> options_from_text(std::string_view text,
                                                                                           std::string_view origin,
                                                                                           cache_options base = {});

/// Returns `base`, changed by the file that PINFOLD_CONFIG names, then by the PINFOLD_ variables themselves. An unknown
/// variable with the prefix is an error, because it is most likely misspelt. A program that has more rights than its
/// caller (set-user-ID, file capabilities) gets `base`.
[[nodiscard]] PINFOLD_EXPORT tl::expected<cache_options, settings_error> options_from_environment(
    cache_options base = {});

/// Returns the options as commented assignments, which both `options_from_text` and a shell can read back.
[[nodiscard]] PINFOLD_EXPORT std::string to_text(const cache_options& options);

}  // namespace pinfold
