// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The order of a hit's pin before its look at the record, paid for by who closes and not by who hits.
#pragma once

#include <atomic>
#include <cstdint>

namespace pinfold::core {

/// How it is done. `membarrier`: a hit orders nothing but the compiler; who closes makes every running thread of the
/// process pass a full barrier (membarrier(2), PRIVATE_EXPEDITED, Linux 4.14). `fences`: where the kernel refuses that,
/// every hit pays two locked instructions on the entry's counter, which are fences by themselves.
enum class barrier_policy : std::uint8_t { membarrier, fences };

/// Fixed by the first call in the process, which every cache makes before it can hand out a pin.
[[nodiscard]] barrier_policy barrier_in_use() noexcept;

/// The policy that the first call of `barrier_in_use` will take instead of asking the kernel. For tests.
void prefer_barrier(barrier_policy wanted) noexcept;

/// After it, whoever pins sees what the caller stored before, and the caller sees every pin stored by who did not.
/// False when the kernel fails, which it does not once the policy is fixed; then nothing may be concluded.
[[nodiscard]] bool order_everywhere() noexcept;

}  // namespace pinfold::core
