// SPDX-License-Identifier: BSD-3-Clause
#include "top/table_view.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

namespace tool::top {

void table_view::set(sample shown) {
  shown_ = std::move(shown);
  text_ = table_of(shown_, least_width);
}

std::size_t table_view::selected_index() const {
  const auto at = std::ranges::find(text_.caches, selected_, &cache_lines::key);
  return at == text_.caches.end() ? 0 : static_cast<std::size_t>(at - text_.caches.begin());
}

void table_view::move(std::ptrdiff_t by) {
  if (text_.caches.empty()) return;
  const auto at = static_cast<std::ptrdiff_t>(selected_index()) + by;
  const auto last = std::ssize(text_.caches) - 1;
  selected_ = text_.caches[static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(at, 0, last))].key;
}

std::optional<cache_key> table_view::selected() const {
  return text_.caches.empty() ? std::nullopt : std::optional(text_.caches[selected_index()].key);
}

// Moves the part in sight as little as possible. The first cache comes with its process above it.
void table_view::bring_into_sight(std::size_t line, std::size_t room) {
  const auto end = line + text_.lines_of_cache;
  if (end > top_ + room) top_ = end - std::min(end, room);
  top_ = std::min(top_, line == text_.caches.front().first ? 0 : line);
}

void table_view::draw(screen& on, std::size_t first, std::size_t end, std::string_view nothing) {
  text_ = table_of(shown_, on.columns());
  for (const auto& title : text_.titles)
    if (first < end) on.put(first++, title, style::title);
  if (text_.lines.empty() && first < end) return on.put(first, nothing);
  const auto room = end - std::min(first, end);
  page_ = static_cast<std::ptrdiff_t>(std::max<std::size_t>(room / text_.lines_of_cache, 1));
  const auto selected = text_.caches.empty() ? SIZE_MAX : text_.caches[selected_index()].first;
  if (selected != SIZE_MAX) bring_into_sight(selected, room);
  top_ = std::min(top_, text_.lines.size() - std::min(text_.lines.size(), room));
  for (std::size_t i = 0; i < room && top_ + i < text_.lines.size(); ++i) {
    const auto at = top_ + i;
    auto line = text_.lines[at];
    if (at == selected) line.front() = '>';
    const bool marked = selected <= at && at - selected < text_.lines_of_cache;
    on.put(first + i, line, marked ? style::selected : style::plain);
  }
}

}  // namespace tool::top
