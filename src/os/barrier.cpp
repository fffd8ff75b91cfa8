// SPDX-License-Identifier: BSD-3-Clause
#include "os/barrier.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace pinfold::os {

namespace {

// Not a function's static variable: registering takes the kernel milliseconds if there are other threads, and a fork
// while a thread initializes the variable would block the child for ever.
enum class choice : std::uint8_t { none, membarrier, fences };
std::atomic<choice> made{choice::none};

bool membarrier(int command) noexcept { return ::syscall(SYS_membarrier, command, 0, 0) == 0; }

}  // namespace

barrier_policy barrier_in_use() noexcept {
  auto chosen = made.load(std::memory_order_acquire);
  if (chosen == choice::none) [[unlikely]] {
    const bool registered = membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
    const auto mine = registered ? choice::membarrier : choice::fences;
    if (made.compare_exchange_strong(chosen, mine, std::memory_order_acq_rel)) chosen = mine;
  }
  return chosen == choice::fences ? barrier_policy::fences : barrier_policy::membarrier;
}

bool order_everywhere() noexcept {
  if (barrier_in_use() == barrier_policy::membarrier) return membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
  // A locked instruction is a full fence, and the thread sanitizer knows it.
  static std::atomic<std::uint64_t> anything{0};
  anything.fetch_add(1, std::memory_order_seq_cst);
  return true;
}

}  // namespace pinfold::os
