// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The width of help texts.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tool {

inline constexpr std::size_t help_width = 80;  ///< columns of a line of `--help`

/// Breaks each line of `text` that is longer than `help_width` at blanks. The rest of such a line begins below the
/// line's last column of a list: behind two or more blanks, or where the line begins.
[[nodiscard]] std::string narrowed(std::string_view text);

/// Returns an entry of a list: the name, and its description from column `width` on, or below a longer name.
[[nodiscard]] std::string list_entry(const std::string& name, std::string_view description, std::size_t width);

}  // namespace tool
