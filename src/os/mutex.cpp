// SPDX-License-Identifier: BSD-3-Clause
#include "os/mutex.hpp"

namespace pinfold::os {

namespace {

constexpr int most_looks = 100;

void pause() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void mutex::wait() noexcept {
  for (int look = 0; look < most_looks; ++look) {
    auto now = state_.load(std::memory_order_relaxed);
    if (now == free && state_.compare_exchange_weak(now, held, std::memory_order_acquire)) return;
    pause();
  }
  while (state_.exchange(slept_on, std::memory_order_acquire) != free) state_.wait(slept_on, std::memory_order_relaxed);
}

}  // namespace pinfold::os
