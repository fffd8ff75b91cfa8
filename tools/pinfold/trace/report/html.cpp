// SPDX-License-Identifier: BSD-3-Clause
#include "trace/report/html.hpp"

#include "cli/sizes.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>

namespace tool::html {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";
constexpr std::string_view narrow_blank = "\xE2\x80\xAF";

// Returns the length of the valid UTF-8 character at the beginning of the text, or 0.
std::size_t character_length(std::string_view text) noexcept {
  const auto first = static_cast<unsigned char>(text.front());
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xC2 && first < 0xE0 ? 2 : first >= 0xE0 && first < 0xF0 ? 3 : 0;
  const auto wanted = first >= 0xF0 && first < 0xF5 ? 4 : length;
  if (wanted == 0 || text.size() < wanted) return 0;
  const auto follows = [](char one) noexcept { return (static_cast<unsigned char>(one) & 0xC0U) == 0x80; };
  if (!std::all_of(text.begin() + 1, text.begin() + static_cast<std::ptrdiff_t>(wanted), follows)) return 0;
  const auto second = static_cast<unsigned char>(text[1]);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool no_character = (first == 0xED && second > 0x9F) || (first == 0xF4 && second > 0x8F);
  return overlong || no_character ? 0 : wanted;
}

std::string_view entity_for(char letter) noexcept {
  switch (letter) {
    case '&': return "&amp;";
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '"': return "&quot;";
    case '\'': return "&#39;";
    default: return {};
  }
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string safe;
  while (!text.empty()) {
    const auto length = character_length(text);
    const auto entity = entity_for(text.front());
    const auto letter = static_cast<unsigned char>(text.front());
    if (!entity.empty()) {
      safe += entity;
    } else if (length == 0 || letter < ' ' || letter == 0x7F) {
      safe += replacement;
    } else {
      safe += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return safe;
}

std::string count_text(std::uint64_t number) {
  constexpr std::size_t group = 3;
  const auto digits = std::to_string(number);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % group == 0) text += narrow_blank;
    text += digits[i];
  }
  return text;
}

std::string room_text(std::size_t room, bool in_entries) {
  return in_entries ? count_text(room) + " registrations" : size_text(room);
}

std::string percent_text(double part, double whole) {
  return fmt::format("{:.1f} %", whole > 0 ? 100 * part / whole : 0.0);
}

std::string time_text(double nanoseconds) {
  constexpr std::array units{"ns", "µs", "ms", "s"};
  constexpr double thousand = 1000;
  std::size_t unit = 0;
  for (; unit + 1 < units.size() && nanoseconds >= thousand; ++unit) nanoseconds /= thousand;
  constexpr double three_digits = 100;
  constexpr double two_digits = 10;
  const int decimals = unit == 0 || nanoseconds >= three_digits ? 0 : nanoseconds >= two_digits ? 1 : 2;
  return fmt::format("{:.{}f} {}", nanoseconds, decimals, units[unit]);
}

std::string to_html(const table& shown) {
  auto text = fmt::format("<div class=\"scroll\"><table>\n<caption>{}</caption>\n<thead><tr>", shown.caption);
  const auto kind_of = [&](std::size_t column) { return column < shown.columns_of_words ? " class=\"words\"" : ""; };
  for (std::size_t i = 0; i < shown.headings.size(); ++i)
    text += fmt::format("<th scope=\"col\"{}>{}</th>", kind_of(i), shown.headings[i]);
  text += "</tr></thead>\n<tbody>\n";
  for (const auto& row : shown.rows) {
    text += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i)
      text += i == 0 ? fmt::format("<th scope=\"row\" class=\"words\">{}</th>", row[i])
                     : fmt::format("<td{}>{}</td>", kind_of(i), row[i]);
    text += "</tr>\n";
  }
  return text + "</tbody></table></div>\n";
}

}  // namespace tool::html
