// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The barrier between a hit's pin and its read of the record. The closing thread pays for it, not the hit.
#pragma once

#include <atomic>
#include <cstdint>

namespace pinfold::os {

/// How the order is enforced. `membarrier`: a hit orders nothing but the compiler; the closing thread makes every
/// running thread of the process pass a full barrier (membarrier(2), PRIVATE_EXPEDITED, Linux 4.14). `fences`: where
/// the kernel refuses membarrier, every hit pays two locked instructions on the entry's counter, which are fences by
/// themselves.
enum class barrier_policy : std::uint8_t { membarrier, fences };

/// Returns the policy in use. The first call in the process fixes it; every cache calls it before it can give out a
/// pin.
[[nodiscard]] barrier_policy barrier_in_use() noexcept;

/// Passes a full barrier on all running threads. A thread that pins afterwards sees the caller's earlier stores; the
/// caller sees every pin stored before that. Returns false if the kernel refuses, as in a process that forbade itself
/// membarrier later: the caller may then conclude nothing.
[[nodiscard]] bool order_everywhere() noexcept;

}  // namespace pinfold::os
