// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What one reading of the pages made, for all that ask within a time.
#pragma once

#include <chrono>

namespace tool {

/// Makes a value anew where the last one is older than a limit. One thread at a time.
template <class Value, class Clock = std::chrono::steady_clock>
class recent {
 public:
  explicit recent(typename Clock::duration oldest) noexcept : oldest_(oldest) {}

  /// Returns the value, which stays until the next call. Throws what `make` throws, and then
  /// has no value.
  template <class Make>
  [[nodiscard]] const Value& get(Make make) {
    if (!fresh_ || Clock::now() - made_at_ >= oldest_) {
      fresh_ = false;
      value_ = make();
      made_at_ = Clock::now();  // not before: making it may take longer than it is kept
      fresh_ = true;
    }
    return value_;
  }

 private:
  typename Clock::duration oldest_;
  typename Clock::time_point made_at_{};
  bool fresh_ = false;
  Value value_{};
};

}  // namespace tool
