// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/bpf/ring.hpp"

#include "monitors/bpf/failure.hpp"
#include "os/check.hpp"

#include <chrono>
#include <sched.h>
#include <sys/mman.h>

namespace pinfold::monitors {

namespace {

// From this size on, a look-up in `watched` takes longer than a cache's look-up that finds nothing.
constexpr std::size_t wide = std::size_t{1} << 32U;

void post(invalidation::event_log& to, const invalidation::registered_filter& watched, const range& gone) noexcept {
  if (gone.size() >= wide || watched.touches(gone)) to.post(gone, invalidation::source::bpf);
}

}  // namespace

result<bpf_ring> bpf_ring::map(const os::file& ring, std::uint64_t from) noexcept {
  void* const at = ::mmap(nullptr, sizeof(area), PROT_READ, MAP_SHARED | MAP_POPULATE, ring.number(), 0);
  if (at == MAP_FAILED) return bpf_fail("cannot map the ring of the kernel programs");
  return bpf_ring(static_cast<const area*>(at), from);
}

bpf_ring::bpf_ring(bpf_ring&& other) noexcept
    : area_(std::exchange(other.area_, nullptr)), drained_(other.drained_.load(std::memory_order_relaxed)) {}

bpf_ring::~bpf_ring() {
  if (area_ != nullptr) ::munmap(const_cast<area*>(area_), sizeof *area_);
}

void bpf_ring::become_empty() noexcept {
  PINFOLD_ASSERT(area_ != nullptr, "a monitor has its ring until its end");
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  if (::mmap(const_cast<area*>(area_), sizeof *area_, PROT_READ, flags, -1, 0) != MAP_FAILED)
    drained_.store(0, std::memory_order_release);
}

bool bpf_ring::read(std::uint64_t number, range& gone) const noexcept {
  const record& at = area_->records[number % pinfold_records];
  const auto check = at.check.load(std::memory_order_acquire);
  const auto begin = at.begin.load(std::memory_order_acquire);
  const auto end = at.end.load(std::memory_order_acquire);
  gone = {begin, end};
  return check == pinfold_check(number, begin, end);
}

// Waits until the record with that number is written. The kernel program that took the number writes the record a few
// instructions later and cannot be preempted in between, unless the whole virtual machine is.
bool bpf_ring::wait_for(std::uint64_t number, range& gone) const noexcept {
  constexpr int spins = 200;
  std::chrono::steady_clock::time_point until{};
  for (int tries = 0;; ++tries) {
    if (read(number, gone)) return true;
    if (generation().load(std::memory_order_acquire) - number > pinfold_records) return false;
    if (tries < spins) continue;
    const auto time = std::chrono::steady_clock::now();
    if (tries == spins) until = time + std::chrono::milliseconds(invalidation::event_log::wait_limit_ms);
    if (time > until) return false;
    ::sched_yield();
  }
}

std::uint64_t bpf_ring::skip_all(invalidation::event_log& to) noexcept {
  const auto now = generation().load(std::memory_order_acquire);
  to.post_everything(invalidation::source::bpf);
  auto at = drained_.load(std::memory_order_acquire);
  while (at < now && !drained_.compare_exchange_weak(at, now, std::memory_order_acq_rel)) {
  }
  return at < now ? now : at;
}

// Two threads may write the same event to the event log, but neither returns before it is there.
std::uint64_t bpf_ring::drain(invalidation::event_log& to, const invalidation::registered_filter& watched) noexcept {
  const auto target = generation().load(std::memory_order_acquire);
  auto at = drained_.load(std::memory_order_acquire);
  while (at < target) {
    range gone;
    if (!wait_for(at, gone)) {
      const auto now = drained_.load(std::memory_order_acquire);  // another thread may have advanced it
      at = now > at ? now : skip_all(to);
      continue;
    }
    post(to, watched, gone);
    if (drained_.compare_exchange_strong(at, at + 1, std::memory_order_acq_rel, std::memory_order_acquire)) ++at;
  }
  return at;
}

}  // namespace pinfold::monitors
