// SPDX-License-Identifier: BSD-3-Clause
#include "watch/board.hpp"

#include <chrono>
#include <ctime>
#include <sched.h>

namespace pinfold::watch {

namespace {

std::uint64_t check_of(std::uint64_t number, const range& gone) noexcept {
  return number ^ gone.begin * 0x9e3779b97f4a7c15ULL ^ gone.end * 0xc2b2ae3d27d4eb4fULL;
}

}  // namespace

void board::publish(std::uint64_t reserved, const range& gone, source from) noexcept {
  slot& at = slots_[reserved % capacity];
  const auto mine = reserved + 1;
  auto mark = at.mark.load(std::memory_order_relaxed);
  do {
    if ((mark & ~changing) > mine) return;  // a whole round late: readers of this number take everything for gone
  } while (!at.mark.compare_exchange_weak(mark, mine | changing, std::memory_order_acquire));
  at.begin.store(gone.begin, std::memory_order_release);
  at.end.store(gone.end, std::memory_order_release);
  at.from.store(from, std::memory_order_release);
  at.check.store(check_of(reserved, gone), std::memory_order_release);
  auto expected = mine | changing;
  at.mark.compare_exchange_strong(expected, mine, std::memory_order_release, std::memory_order_relaxed);
}

news board::look_at(const slot& at, std::uint64_t number, range& gone, source& from) const noexcept {
  const auto mark = at.mark.load(std::memory_order_acquire);
  if ((mark & ~changing) > number + 1) return news::everything;
  if (mark != number + 1) return news::nothing;
  gone.begin = at.begin.load(std::memory_order_acquire);
  gone.end = at.end.load(std::memory_order_acquire);
  from = at.from.load(std::memory_order_acquire);
  const bool whole = at.check.load(std::memory_order_acquire) == check_of(number, gone);
  return whole && at.mark.load(std::memory_order_acquire) == mark ? news::one : news::everything;
}

news board::read(std::uint64_t& cursor, range& gone, source& from) const noexcept {
  const auto now = generation_.load(std::memory_order_acquire);
  if (cursor == now) return news::nothing;
  if (now - cursor > capacity) {
    cursor = now - capacity;
    return news::everything;
  }
  const news seen = wait_for(cursor, gone, from);
  if (seen != news::unfinished) ++cursor;
  return seen;
}

news board::wait_for(std::uint64_t number, range& gone, source& from) const noexcept {
  const slot& at = slots_[number % capacity];
  constexpr int spins = 200;
  std::chrono::steady_clock::time_point until{};
  for (int tries = 0;; ++tries) {
    if (const news seen = look_at(at, number, gone, from); seen != news::nothing) return seen;
    if (tries < spins) continue;
    const auto time = std::chrono::steady_clock::now();
    if (tries == spins) until = time + std::chrono::milliseconds(patience_ms);
    if (time > until) return news::unfinished;
    ::sched_yield();
  }
}

}  // namespace pinfold::watch
