// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Calls of a driver that fail when a test says so.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace pinfold::testing {

/// The place where a driver's stand-in asks whether a call is to fail. Thread-safe.
class fault_points {
 public:
  /// Returns the code that this call is to fail with, or 0.
  int strike(std::string_view call) {
    const std::lock_guard guard(mutex_);
    const auto number = ++calls_[std::string(call)];
    if (code_ == 0 || (call != failing_ && failing_ != "any") || !due(failing_ == "any" ? ++any_ : number)) return 0;
    ++struck_;
    return code_;
  }

  /// Makes the nth call from now on fail, and all later ones if `for_good`. "any" counts all calls together.
  void fail(std::string_view call, std::uint64_t nth, int code, bool for_good = false) {
    const std::lock_guard guard(mutex_);
    failing_ = call;
    code_ = code;
    for_good_ = for_good;
    any_ = struck_ = 0;
    nth_ = nth + (call == "any" ? 0 : calls_[failing_]);
  }
  void heal() {
    const std::lock_guard guard(mutex_);
    code_ = 0;
  }
  /// Returns how many calls failed since `fail`.
  [[nodiscard]] std::uint64_t struck() const {
    const std::lock_guard guard(mutex_);
    return struck_;
  }

 private:
  [[nodiscard]] bool due(std::uint64_t number) const { return for_good_ ? number >= nth_ : number == nth_; }

  mutable std::mutex mutex_;
  std::map<std::string, std::uint64_t> calls_;
  std::string failing_;
  std::uint64_t nth_ = 0, any_ = 0, struck_ = 0;
  int code_ = 0;
  bool for_good_ = false;
};

}  // namespace pinfold::testing
