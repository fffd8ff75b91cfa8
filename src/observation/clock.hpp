// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The clocks of a page.
#pragma once

#include <cstdint>
#include <ctime>

namespace pinfold::observation {

[[nodiscard]] inline std::uint64_t now_ns(clockid_t which = CLOCK_MONOTONIC) noexcept {
  timespec now{};
  ::clock_gettime(which, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace pinfold::observation
