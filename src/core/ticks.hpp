// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A coarse clock: four bytes, and a few nanoseconds to read.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>

namespace pinfold::core {

/// The kernel's coarse clock, read through the vDSO; it advances with the timer interrupt.
inline constexpr std::int64_t ticks_per_second = 64;

/// Returns the present time. Wraps after two years.
[[nodiscard]] inline std::uint32_t ticks() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint32_t>(now.tv_sec * ticks_per_second + now.tv_nsec * ticks_per_second / 1'000'000'000);
}

[[nodiscard]] constexpr std::chrono::nanoseconds since(std::uint32_t then, std::uint32_t now) noexcept {
  return std::chrono::nanoseconds(std::int64_t{now - then} * (1'000'000'000 / ticks_per_second));
}

}  // namespace pinfold::core
