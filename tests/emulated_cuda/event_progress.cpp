// SPDX-License-Identifier: BSD-3-Clause
#include "events.hpp"

#include <ctime>
#include <linux/futex.h>
#include <new>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace emulated_cuda {

namespace {

bool before(std::uint32_t a, std::uint32_t b) noexcept { return static_cast<std::int32_t>(a - b) < 0; }

/// Returns whether the process that recorded the event has ended, so that it will never complete.
bool abandoned(const event_progress& of) noexcept {
  const pid_t recorder = of.recorder.load(std::memory_order_relaxed);
  return recorder != ::getpid() && start_time_of(recorder) == 0;
}

}  // namespace

progress map_progress(const backing& memory) noexcept {
  void* const at = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED, memory.file.number(), 0);
  if (at == MAP_FAILED) return nullptr;
  // A new file and a new event_progress are both all zeroes.
  return {std::launder(static_cast<event_progress*>(at)), [](event_progress* gone) { ::munmap(gone, page); }};
}

bool is_done(const event_progress& of, std::uint32_t number) noexcept {
  return !before(of.completed.load(std::memory_order_acquire), number);
}

void wait_for(event_progress& of, std::uint32_t number) noexcept {
  constexpr timespec timeout{.tv_sec = 0, .tv_nsec = 20'000'000};
  for (;;) {
    const std::uint32_t seen = of.completed.load(std::memory_order_acquire);
    if (!before(seen, number) || abandoned(of)) return;
    ::syscall(SYS_futex, &of.completed, FUTEX_WAIT, seen, &timeout, nullptr, 0);
  }
}

void complete(event_progress& of, std::uint32_t number) noexcept {
  std::uint32_t seen = of.completed.load(std::memory_order_relaxed);
  while (before(seen, number) && !of.completed.compare_exchange_weak(seen, number, std::memory_order_acq_rel)) {
  }
  ::syscall(SYS_futex, &of.completed, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

}  // namespace emulated_cuda
