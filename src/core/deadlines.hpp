// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The deadlines of one call.
#pragma once

#include "core/wait_table.hpp"

#include <pinfold/options.hpp>

#include <chrono>

namespace pinfold::core {

/// How long a call waits for pins that may be transient. A thread inside a failing hit gives its pin back some
/// instructions later, once it runs. A lease's pin looks the same, so this bounds the time that a refusal takes. Tests
/// make it longer.
inline std::chrono::microseconds longest_transient_pin{5000};

/// How long a request closes other registrations, one after the other, although it gets no room. Tests make it shorter.
inline std::chrono::milliseconds longest_making_room{5000};

/// The deadlines of one call, fixed when the call first waits: most calls never wait, and reading the clock costs as
/// much as a hit.
class deadlines {
 public:
  explicit deadlines(const cache_options& options) noexcept : options_(options) {}
  [[nodiscard]] deadline others() const noexcept { return start() + options_.wait_timeout; }
  [[nodiscard]] deadline conflicts() const noexcept { return start() + options_.conflict_timeout; }
  [[nodiscard]] deadline room() const noexcept { return start() + options_.full_timeout; }
  /// Returns until when a request closes other registrations, one after the other, although it gets no room.
  [[nodiscard]] deadline making_room() const noexcept { return start() + longest_making_room; }
  /// Returns the deadline for transient pins.
  [[nodiscard]] deadline transient() const noexcept { return start() + longest_transient_pin; }

 private:
  [[nodiscard]] deadline start() const noexcept {
    if (start_ == deadline{}) start_ = std::chrono::steady_clock::now();
    return start_;
  }

  const cache_options& options_;
  mutable deadline start_{};
};

}  // namespace pinfold::core
