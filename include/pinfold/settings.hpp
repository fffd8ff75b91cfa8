// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Cache options as text: environment variables with the prefix `PINFOLD_`, or a file of the same assignments.
///
/// Nothing in the library reads them by itself: a program that wants it calls `options_from_environment`. Only
/// PINFOLD_TRACE, which is no setting of a cache, is obeyed by every cache (`trace_file.hpp`).
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/options.hpp>

#include <cstddef>
#include <string>
#include <string_view>

namespace pinfold {

/// `text` as a number of bytes or things: digits, then K, M, G or T for powers of 1024 (a B after them is allowed), or
/// `inf` for no limit, which is 0. `invalid_argument` otherwise, overflow included.
[[nodiscard]] PINFOLD_EXPORT result<std::size_t> parse_size(std::string_view text) noexcept;

/// What went wrong with a setting, and where.
struct settings_error {
  error cause;
  std::string where;  ///< the variable or the `file:line`, and the text that was refused
};

/// `base`, changed by the assignments in `text`: a line each, `PINFOLD_NAME=value`, comments after `#`, blank lines.
/// `origin` names the text in errors. An unknown name is an error.
[[nodiscard]] PINFOLD_EXPORT tl::expected<cache_options, settings_error> options_from_text(std::string_view text,
                                                                                           std::string_view origin,
                                                                                           cache_options base = {});

/// `base`, changed by the file that PINFOLD_CONFIG names, then by the PINFOLD_ variables themselves. A variable with
/// the prefix that pinfold does not know is an error, as it is most likely misspelt.
[[nodiscard]] PINFOLD_EXPORT tl::expected<cache_options, settings_error> options_from_environment(
    cache_options base = {});

/// The options as commented assignments that `options_from_text` and a shell both read back.
[[nodiscard]] PINFOLD_EXPORT std::string to_text(const cache_options& options);

}  // namespace pinfold
