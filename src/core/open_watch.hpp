// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What one request pays the driver, for who traces requests.
#pragma once

#include <algorithm>
#include <chrono>
#include <utility>

namespace pinfold::core {

/// What the driver's open took on this thread since this object was made. Watches nest, as a driver may use a cache
/// itself; each sees its own.
class open_watch {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  open_watch() noexcept : outer_(std::exchange(total, {})) {}
  ~open_watch() { total = outer_; }
  open_watch(const open_watch&) = delete;
  open_watch& operator=(const open_watch&) = delete;
  [[nodiscard]] std::chrono::nanoseconds spent() const noexcept { return total; }

  /// The time before an open; nothing where nobody `watches`.
  [[nodiscard]] static time_point now(bool watches) noexcept {
    return watches ? std::chrono::steady_clock::now() : time_point{};
  }
  /// The open has ended. It took 1 ns at least, so that it can be told from none.
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
