// SPDX-License-Identifier: BSD-3-Clause
#include "os/mutex.hpp"

#include <chrono>

namespace pinfold::os {

namespace {

constexpr int most_looks = 100;
constexpr std::chrono::milliseconds longest_sleep{1};

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
  const auto starves_at = std::chrono::steady_clock::now() + longest_sleep;
  bool starved = false;
  for (;;) {
    auto now = state_.load(std::memory_order_relaxed);
    const bool mine = now == free || (now == reserved && starved);
    auto next = now;
    if (mine || now == held) next = slept_on;
    if (!mine && starved && now != reserved) next = claimed;
    if (next != now && !state_.compare_exchange_weak(now, next, std::memory_order_acquire, std::memory_order_relaxed))
      continue;
    if (mine) return;
    state_.wait(next, std::memory_order_relaxed);
    starved = starved || std::chrono::steady_clock::now() >= starves_at;
  }
}

// `was`: the state before `unlock` subtracted one; the result still counts as held. Sequentially consistent, because
// the library checks afterwards whether a thread sleeps.
void mutex::wake(std::uint32_t was) noexcept {
  auto now = was - 1;
  while (!state_.compare_exchange_weak(now, was == claimed || now == claimed ? reserved : free,
                                       std::memory_order_seq_cst)) {
  }
  if (was == claimed || now == claimed) {
    state_.notify_all();  // notify_one may wake a thread that must not take it
  } else {
    state_.notify_one();
  }
}

}  // namespace pinfold::os
