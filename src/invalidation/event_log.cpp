// SPDX-License-Identifier: BSD-3-Clause
#include "invalidation/event_log.hpp"

#include "os/check.hpp"
#include "os/probes.hpp"

#include <chrono>
#include <ctime>
#include <sched.h>

namespace pinfold::invalidation {

namespace {

std::uint64_t check_of(std::uint64_t number, const range& gone) noexcept {
  return number ^ gone.begin * 0x9e3779b97f4a7c15ULL ^ gone.end * 0xc2b2ae3d27d4eb4fULL;
}

/// Waits for a thread that is between two instructions; gives up if that thread lost its processor.
class wait {
 public:
  void pause() noexcept {
    if (++tries_ < spins) return;
    const auto now = std::chrono::steady_clock::now();
    if (tries_ == spins) until_ = now + std::chrono::milliseconds(event_log::wait_limit_ms);
    over_ = now > until_;
    ::sched_yield();
  }
  [[nodiscard]] bool is_over() const noexcept { return over_; }

 private:
  static constexpr int spins = 200;
  int tries_ = 0;
  bool over_ = false;
  std::chrono::steady_clock::time_point until_{};
};

void observe(const range& gone, source from) noexcept {
  if (gone.empty()) return;
  PINFOLD_PROBE(gone, gone.begin, gone.size(), static_cast<int>(from));
  const auto call = event_log::on_event.load(std::memory_order_acquire);
  if (call != nullptr) call(gone, from);
}

}  // namespace

// Stores the bound first: a reader that finds the generation past the number then also finds the bound, until the
// number is published.
std::uint64_t event_log::reserve() noexcept {
  PINFOLD_ASSERT(outstanding_.load(std::memory_order_relaxed) == 0, "one thread at a time has a reserved number");
  outstanding_.store(generation_.load(std::memory_order_seq_cst) + 1, std::memory_order_seq_cst);
  return generation_.fetch_add(1, std::memory_order_seq_cst);
}

void event_log::publish(std::uint64_t reserved, const range& gone, source from) noexcept {
  PINFOLD_ASSERT(
      outstanding_.load(std::memory_order_relaxed) != 0 && outstanding_.load(std::memory_order_relaxed) <= reserved + 1,
      "readers wait for the number until it is published");
  if (write(reserved, gone, from)) {
    observe(gone, from);
  } else {
    post(gone, from);
  }
  outstanding_.store(0, std::memory_order_release);
}

void event_log::post(const range& gone, source from) noexcept {
  while (!write(generation_.fetch_add(1, std::memory_order_seq_cst), gone, from)) {
  }
  observe(gone, from);
}

void event_log::note_filled(std::uint64_t number) noexcept {
  auto latest = filled_.load(std::memory_order_relaxed);
  while (latest <= number && !filled_.compare_exchange_weak(latest, number + 1, std::memory_order_seq_cst)) {
  }
}

// A reader that is a ring late loads the generation and then the latest number with a range. The writer raises that
// number and then loads the generation. So either the reader sees this number, or this thread sees that the reader may
// skip it, and returns false.
bool event_log::write(std::uint64_t number, const range& gone, source from) noexcept {
  slot& at = slots_[number % capacity];
  const auto mine = number + 1;
  if (!gone.empty()) note_filled(number);
  const auto is_late = [&] { return generation_.load(std::memory_order_seq_cst) - number > capacity; };
  auto mark = at.mark.load(std::memory_order_relaxed);
  do {
    if ((mark & ~changing) > mine) return gone.empty();  // the slot belongs to a newer event
  } while (!at.mark.compare_exchange_weak(mark, mine | changing, std::memory_order_acquire));
  at.begin.store(gone.begin, std::memory_order_release);
  at.end.store(gone.end, std::memory_order_release);
  at.from.store(from, std::memory_order_release);
  at.check.store(check_of(number, gone), std::memory_order_release);
  auto expected = mine | changing;
  at.mark.compare_exchange_strong(expected, mine, std::memory_order_release, std::memory_order_relaxed);
  return gone.empty() || !is_late();
}

read_status event_log::look_at(const slot& at, std::uint64_t number, range& gone, source& from) const noexcept {
  const auto mark = at.mark.load(std::memory_order_acquire);
  if ((mark & ~changing) > number + 1) return read_status::everything;
  if (mark != number + 1) return read_status::nothing;
  gone.begin = at.begin.load(std::memory_order_acquire);
  gone.end = at.end.load(std::memory_order_acquire);
  from = at.from.load(std::memory_order_acquire);
  const bool whole = at.check.load(std::memory_order_acquire) == check_of(number, gone);
  return whole && at.mark.load(std::memory_order_acquire) == mark ? read_status::one : read_status::everything;
}

read_status event_log::read(std::uint64_t& cursor, range& gone, source& from) const noexcept {
  const auto now = generation_.load(std::memory_order_seq_cst);
  if (cursor == now) return read_status::nothing;
  if (now - cursor > capacity)
    if (const read_status missed = catch_up(cursor, now); missed != read_status::nothing) return missed;
  const read_status seen = wait_for(cursor, gone, from);
  if (seen == read_status::everything && is_outstanding_before(cursor + 1)) return read_status::unfinished;
  if (seen != read_status::unfinished) ++cursor;
  return seen;
}

// Moves a late cursor past all events that the ring has lost.
read_status event_log::catch_up(std::uint64_t& cursor, std::uint64_t now) const noexcept {
  const auto oldest = now - capacity;
  for (wait until; is_outstanding_before(oldest); until.pause())
    if (until.is_over()) return read_status::unfinished;
  const bool all_empty = filled_.load(std::memory_order_seq_cst) <= cursor;
  cursor = oldest;
  return all_empty ? read_status::nothing : read_status::everything;
}

read_status event_log::wait_for(std::uint64_t number, range& gone, source& from) const noexcept {
  const slot& at = slots_[number % capacity];
  for (wait until;; until.pause()) {
    if (const read_status seen = look_at(at, number, gone, from); seen != read_status::nothing) return seen;
    if (until.is_over()) return read_status::unfinished;
  }
}

}  // namespace pinfold::invalidation
