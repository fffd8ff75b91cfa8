// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/allocator_tuning.hpp"

#include "monitors/self_test/self_test.hpp"
#include "os/check.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <malloc.h>
#include <mutex>

namespace pinfold::monitors {

namespace {

// The defaults of glibc (mallopt(3)): the earlier values cannot be read.
constexpr int default_most_mappings = 65536;
constexpr int default_trim = 128 * 1024;

// NOLINTBEGIN(concurrency-mt-unsafe): glibc's takes the lock of the main arena
void hint() noexcept {
  ::mallopt(M_MMAP_MAX, 0);
  ::mallopt(M_TRIM_THRESHOLD, -1);
}

void take_back() noexcept {
  ::mallopt(M_MMAP_MAX, default_most_mappings);
  ::mallopt(M_TRIM_THRESHOLD, default_trim);
  ::malloc_trim(0);
}
// NOLINTEND(concurrency-mt-unsafe)

// Returns whether the allocator keeps freed memory. Needs no monitor: it only checks whether any memory is unmapped.
bool honoured() noexcept {
  const invalidation::monitor_set no_monitors({});
  sources seen = 0;
  return free_of_64_mebibytes(no_monitors, seen) == outcome::kept;
}

/// The number of hint holders. A child of fork(2) gets its own: a thread of its parent may have locked the mutex.
struct wishes {
  std::uint64_t process = 0;
  std::mutex mutex;
  std::size_t users = 0;  // guarded by mutex
};
std::atomic<wishes*> current{nullptr};

wishes& wishes_here() {
  const auto process = invalidation::event_log::here().process();
  wishes* found = current.load(std::memory_order_seq_cst);
  while (found == nullptr || found->process != process) {
    auto fresh = std::make_unique<wishes>();
    fresh->process = process;
    if (current.compare_exchange_strong(found, fresh.get(), std::memory_order_seq_cst))
      return *fresh.release();  // never freed
  }
  return *found;
}

struct one_wish_less {
  void operator()(wishes* of) const noexcept {
    if (invalidation::event_log::here().process() != of->process) return;
    const std::lock_guard guard(of->mutex);
    PINFOLD_ASSERT(of->users > 0, "a holder of the hint is counted");
    if (--of->users == 0) take_back();
  }
};

// The caller holds the lock.
bool try_hint() noexcept {
  if (honoured()) return false;  // honoured without a hint
  hint();
  if (honoured()) return true;
  take_back();
  return false;
}

}  // namespace

std::shared_ptr<void> hint_allocator() {
  wishes& here = wishes_here();
  {
    const std::lock_guard guard(here.mutex);
    if (here.users == 0 && !try_hint()) return nullptr;
    ++here.users;
  }
  return std::unique_ptr<wishes, one_wish_less>(&here);
}

}  // namespace pinfold::monitors
