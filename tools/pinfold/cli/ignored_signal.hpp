// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Signals that a parent made this process ignore, as nohup does.
#pragma once

#include <csignal>

namespace tool {

[[nodiscard]] inline bool is_ignored(int signal) noexcept {
  struct sigaction found{};
  return ::sigaction(signal, nullptr, &found) == 0 && found.sa_handler == SIG_IGN;
}

}  // namespace tool
