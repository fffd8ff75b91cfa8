// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Measures the driver's share of one request, for traces.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

namespace pinfold::core {

/// A stopwatch for the driver's opens on this thread, from its construction on. Watches nest, as a driver may use a
/// cache itself; each measures its own opens.
class open_watch {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  open_watch() noexcept : outer_(std::exchange(total, {})) {}
  ~open_watch() { total = outer_; }
  open_watch(const open_watch&) = delete;
  open_watch& operator=(const open_watch&) = delete;
  [[nodiscard]] std::chrono::nanoseconds spent() const noexcept { return total; }

  /// Returns the time before an open, or an empty time point unless `watches`.
  [[nodiscard]] static time_point now(bool watches) noexcept {
    return watches ? std::chrono::steady_clock::now() : time_point{};
  }
  /// Adds the time since `start`: at least 1 ns, so that an open can be told from none.
  static void add_since(time_point start) noexcept {
    using std::chrono::nanoseconds;
    if (start == time_point{}) return;
    total += std::max(nanoseconds(std::chrono::steady_clock::now() - start), nanoseconds(1));
  }

 private:
  inline static thread_local std::chrono::nanoseconds total{0};
  std::chrono::nanoseconds outer_;
};

}  // namespace pinfold::core
