// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The owner of imported memory.
#pragma once

#include <compare>
#include <cstdint>

namespace pinfold {

/// The caller's id for one exporting process, for example a rank. One id stands for one address space: the same address
/// under two ids means two different pieces of memory. pinfold does not interpret the values.
struct peer_id {
  std::uint64_t value = 0;  ///< any number

  friend constexpr auto operator<=>(const peer_id&, const peer_id&) noexcept = default;
};

}  // namespace pinfold
