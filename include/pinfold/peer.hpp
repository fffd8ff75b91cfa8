// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Who owns imported memory.
#pragma once

#include <compare>
#include <cstdint>

namespace pinfold {

/// The caller's own name for one exporting process, a rank for example. One id stands for one address space: the same
/// address under two ids is two different memories. The values mean nothing to pinfold.
struct peer_id {
  std::uint64_t value = 0;

  friend constexpr auto operator<=>(const peer_id&, const peer_id&) noexcept = default;
};

}  // namespace pinfold
