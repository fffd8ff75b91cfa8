// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The table on a screen, with one cache selected.
#pragma once

#include "top/sample.hpp"
#include "top/screen.hpp"
#include "top/table.hpp"

#include <cstddef>
#include <optional>
#include <string_view>

namespace tool::top {

class table_view {
 public:
  /// Sets what is shown. The selected cache stays selected as long as it is there; then it is the first one.
  void set(sample shown);

  /// Selects a cache further down, or up.
  void move(std::ptrdiff_t by);

  /// Returns the selected cache; nothing if there is none.
  [[nodiscard]] std::optional<cache_key> selected() const;

  /// Returns how many caches are seen at once, as of the last `draw`; 1 at least.
  [[nodiscard]] std::ptrdiff_t page() const noexcept { return page_; }

  /// Draws from one line of the screen up to another, with the selected cache in sight; `nothing` for an empty table.
  void draw(screen& on, std::size_t first, std::size_t end, std::string_view nothing);

 private:
  [[nodiscard]] std::size_t selected_index() const;
  void bring_into_sight(std::size_t line, std::size_t room);

  sample shown_;
  table_text text_;
  cache_key selected_;
  std::size_t top_ = 0;
  std::ptrdiff_t page_ = 1;
};

}  // namespace tool::top
