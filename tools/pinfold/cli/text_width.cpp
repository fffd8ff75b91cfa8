// SPDX-License-Identifier: BSD-3-Clause
#include "cli/text_width.hpp"

#include <algorithm>

namespace tool {
namespace {

constexpr std::size_t least_text = 30;  // columns; where less would remain, the text begins further left

// Returns where the last column of the line begins, if the line has columns, or else its first letter.
std::size_t hanging(std::string_view line) {
  const auto letter = std::min(line.find_first_not_of(' '), line.size());
  const auto gap = line.find("  ", letter);
  const auto column = gap == std::string_view::npos ? letter : line.find_first_not_of(' ', gap);
  return column > help_width - least_text ? letter : column;
}

// Appends the words, in lines that begin at column `indent`. The first begins at column `at`, where the text ends.
void append_words(std::string& text, std::string_view words, std::size_t at, std::size_t indent) {
  bool first = true;
  while (!words.empty()) {
    const auto word = words.substr(0, words.find(' '));
    words.remove_prefix(std::min(word.size() + 1, words.size()));
    if (!first && at + 1 + word.size() > help_width) {
      text.append("\n").append(indent, ' ');
      at = indent;
      first = true;
    }
    if (!first) text += ' ';
    text += word;
    at += word.size() + (first ? 0 : 1);
    first = false;
  }
}

}  // namespace

std::string narrowed(std::string_view text) {
  std::string lines;
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const auto indent = line.size() > help_width ? hanging(line) : line.size();
    lines += line.substr(0, indent);
    append_words(lines, line.substr(indent), indent, indent);
    lines += '\n';
  }
  return lines;
}

std::string list_entry(const std::string& name, std::string_view description, std::size_t width) {
  auto entry = "  " + name;
  if (description.empty()) return entry + "\n";
  if (entry.size() + 2 > width) entry += "\n";
  entry.append(width - std::min(width, entry.size() - (entry.find('\n') + 1)), ' ');
  append_words(entry, description, width, width);
  return entry + "\n";
}

}  // namespace tool
