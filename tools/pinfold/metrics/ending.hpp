// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The signals that end a command which runs until then.
#pragma once

#include <chrono>
#include <csignal>

namespace tool {

/// Blocks SIGINT, SIGTERM and SIGHUP on the calling thread, and on threads that it makes from then on. A SIGHUP that is
/// ignored, as under nohup, stays ignored.
class ending_signals {
 public:
  ending_signals() noexcept;

  /// Waits for one of them. Returns false after `limit`.
  [[nodiscard]] bool arrived_within(std::chrono::nanoseconds limit) const noexcept;

 private:
  sigset_t all_{};
};

}  // namespace tool
