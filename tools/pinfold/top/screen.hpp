// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A terminal, drawn with ncurses.
#pragma once

#include "top/terminal_signals.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <string_view>

namespace tool::top {

enum class key {
  none,    ///< the time is over
  letter,  ///< `input::letter`: printable ASCII
  redraw,  ///< the size changed, or the process went on
  end,     ///< a signal ends the process: `input::signal`; 0: the terminal is gone
  up,
  down,
  page_up,
  page_down,
  first,
  last,
  enter,
  escape,
  backspace,
};

struct input {
  key what = key::none;
  char letter = 0;
  int signal = 0;
};

enum class style { plain, bold, title, selected, warning };

/// The whole terminal. When it ends, the terminal is as it was. One object at a time.
class screen {
 public:
  /// Throws `failure` for a terminal that ncurses does not know.
  screen();
  screen(const screen&) = delete;
  screen& operator=(const screen&) = delete;
  ~screen();

  [[nodiscard]] std::size_t lines() const noexcept;
  [[nodiscard]] std::size_t columns() const noexcept;

  /// Empties the screen; what `put` wrote since then appears with `show`.
  void clear() noexcept;
  /// Writes a line from column 0 on. What has no room is left out.
  void put(std::size_t line, std::string_view text, style how = style::plain);
  void show() noexcept;

  /// Waits for a key. Handles a change of the size, and SIGTSTP.
  [[nodiscard]] input wait(std::chrono::milliseconds longest) noexcept;

 private:
  [[nodiscard]] input take_signal() noexcept;

  struct ncurses;
  terminal_signals signals_;
  std::unique_ptr<ncurses> real_;
};

}  // namespace tool::top
