// SPDX-License-Identifier: BSD-3-Clause
#include "core/mutex.hpp"

namespace pinfold::core {

namespace {

constexpr int most_looks = 100;
constexpr int most_pauses = 16;  // between two looks: who looks takes the line from who works in it

void pause(int times) noexcept {
  for (; times > 0; --times) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }
}

}  // namespace

void mutex::wait() noexcept {
  int pauses = 1;
  for (int look = 0; look < most_looks; ++look) {
    auto now = state_.load(std::memory_order_relaxed);
    if (now == free && state_.compare_exchange_weak(now, held, std::memory_order_acquire)) return;
    pause(pauses);
    if (pauses < most_pauses) pauses *= 2;
  }
  while (state_.exchange(slept_on, std::memory_order_acquire) != free) state_.wait(slept_on, std::memory_order_relaxed);
}

}  // namespace pinfold::core
