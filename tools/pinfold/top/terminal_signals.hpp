// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The signals of a program that has changed its terminal.
#pragma once

#include <array>
#include <csignal>
#include <cstddef>
#include <string>
#include <termios.h>

namespace tool::top {

/// Queues SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT and SIGWINCH as long as it lives; those that the process
/// ignores stay ignored. If a signal that ends the process is not taken within a second, as when the output is stuck,
/// the handler gives the terminal its earlier modes and ends the process by the signal. One object at a time.
class terminal_signals {
 public:
  /// Remembers the modes that the terminal has now. Throws `failure`.
  terminal_signals();
  terminal_signals(const terminal_signals&) = delete;
  terminal_signals& operator=(const terminal_signals&) = delete;
  ~terminal_signals();

  /// Is readable when a signal is queued.
  [[nodiscard]] int descriptor() const noexcept { return ends_[0]; }
  /// Takes the next signal; 0 if there is none.
  [[nodiscard]] int next() noexcept;

  /// Sets what the handler writes to the terminal before it ends the process, if the terminal takes it at once.
  static void set_farewell(std::string text);

  /// Stops the process, as SIGTSTP does without a handler. Returns when it goes on.
  void stop_process() noexcept;

 private:
  static constexpr std::array queued{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH, SIGALRM};
  std::array<int, 2> ends_{-1, -1};
  std::array<struct sigaction, queued.size()> earlier_{};
};

/// Returns whether the signal ends the process.
[[nodiscard]] constexpr bool ends(int signal) noexcept {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

/// Ends the process by a signal.
[[noreturn]] void die_of(int signal) noexcept;

}  // namespace tool::top
