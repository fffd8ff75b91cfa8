// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/hooks/code_lock.hpp"

#include "monitors/hooks/system_call.hpp"
#include "os/check.hpp"

#include <ctime>
#include <sys/syscall.h>

namespace pinfold::monitors {

namespace {

constexpr std::uint32_t change = UINT32_MAX;

std::uint32_t this_thread() noexcept { return static_cast<std::uint32_t>(system_call(SYS_gettid)); }

// Returns false if that takes about half a second.
template <class F>
bool try_for_long(F&& done) noexcept {
  constexpr timespec pause{0, 50'000};  // takes twice as long with the kernel's slack
  constexpr int most = 5'000, without_pause = 100;
  for (int tries = 0; tries < most; ++tries) {
    if (done()) return true;
    if (tries < without_pause)
      system_call(SYS_sched_yield);
    else
      system_call(SYS_nanosleep, reinterpret_cast<unsigned long>(&pause));
  }
  return false;
}

}  // namespace

code_lock::shared::shared(code_lock* of) noexcept : of_(of) {
  if (of_ == nullptr) return;
  const auto enter = [&] {
    if (of_->changed_by_.load(std::memory_order_seq_cst) != 0)
      return false;  // also while that thread still waits, or it would wait for ever
    auto calls = of_->calls_.load(std::memory_order_seq_cst);
    while (calls != change)
      if (of_->calls_.compare_exchange_weak(calls, calls + 1, std::memory_order_seq_cst)) return true;
    return false;
  };
  if (enter()) return;
  if (of_->changed_by_.load(std::memory_order_seq_cst) == this_thread() || !try_for_long(enter)) of_ = nullptr;
}

// In a child forked by a signal handler during the call, no call is counted.
code_lock::shared::~shared() {
  if (of_ == nullptr) return;
  auto calls = of_->calls_.load(std::memory_order_seq_cst);
  while (calls != 0 && calls != change &&
         !of_->calls_.compare_exchange_weak(calls, calls - 1, std::memory_order_seq_cst)) {
  }
}

code_lock::exclusive::exclusive(code_lock& of) noexcept : of_(of) {
  PINFOLD_ASSERT(of_.changed_by_.load(std::memory_order_relaxed) == 0, "one thread at a time changes code");
  of_.changed_by_.store(this_thread(), std::memory_order_seq_cst);  // first: from here on a signal handler may call
  held_ = try_for_long([&] {
    std::uint32_t none = 0;
    return of_.calls_.compare_exchange_strong(none, change, std::memory_order_seq_cst);
  });
}

code_lock::exclusive::~exclusive() {
  if (held_) of_.calls_.store(0, std::memory_order_seq_cst);
  of_.changed_by_.store(0, std::memory_order_seq_cst);
}

}  // namespace pinfold::monitors
