// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Text, figures and tables in HTML.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tool::html {

/// Returns the text with everything escaped that means something in HTML and SVG, in content and in quoted attributes.
/// Bytes that are not UTF-8, and control characters, become a replacement character.
[[nodiscard]] std::string escaped(std::string_view text);

/// Returns `1234567` as `1 234 567`, with narrow blanks at which no line breaks.
[[nodiscard]] std::string count_text(std::uint64_t number);

/// Returns the room of a cache: a number of registrations, or of bytes with a unit.
[[nodiscard]] std::string room_text(std::size_t room, bool in_entries);

/// Returns `part` of `whole` as `12.3 %`.
[[nodiscard]] std::string percent_text(double part, double whole);

/// Returns nanoseconds as `12.3 µs`.
[[nodiscard]] std::string time_text(double nanoseconds);

/// A table. Cells are HTML; the first column names its row.
struct table {
  std::string caption;
  std::vector<std::string> headings;
  std::vector<std::vector<std::string>> rows;
  std::size_t columns_of_words = 1;  ///< the others are numbers, which are aligned to the right
};

/// Returns the table with its scopes.
[[nodiscard]] std::string to_html(const table& shown);

}  // namespace tool::html
