// SPDX-License-Identifier: BSD-3-Clause
#include "registrars/mlock/table.hpp"

#include "os/page_bytes.hpp"
#include "os/procmap.hpp"
#include "os/this_process.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <new>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

namespace pinfold::mlocks {

namespace {

// Raw system calls: the sanitizers replace the C library's functions by ones that do nothing.
int lock_pages(const range& pages) noexcept { return ::syscall(SYS_mlock, pages.begin, pages.size()) == 0 ? 0 : errno; }

// Unlocks the pages up to the first that is not mapped.
int unlock_pages(const range& pages) noexcept {
  return ::syscall(SYS_munlock, pages.begin, pages.size()) == 0 ? 0 : errno;
}

// Returns what of the pages is unlocked next, from `at` on: a mapping; or a page, where the kernel does not report
// mappings (before Linux 6.11).
range next_to_unlock(const detail::own_maps& maps, std::uintptr_t at, std::uintptr_t end) noexcept {
  const auto there = detail::mapping_from(maps, at);
  if (there) return {std::clamp(there->begin, at, end), std::clamp(there->end, at, end)};
  return errno == ENOENT ? range{end, end} : range{at, at + os::page_bytes()};
}

// Returns 0 if none of the pages is locked any more, though some may be unmapped. A munlock(2) that meets pages that
// are not mapped, because another thread unmaps them meanwhile, has unlocked those before: it goes on a page further.
int unlock_all_pages(const range& pages) noexcept {
  int native = unlock_pages(pages);
  if (native != ENOMEM) return native;
  const detail::own_maps maps;
  for (auto at = pages.begin; at < pages.end;) {
    const auto piece = next_to_unlock(maps, at, pages.end);
    native = piece.empty() ? 0 : unlock_pages(piece);
    if (native != 0 && native != ENOMEM) return native;
    at = native == 0 ? piece.end : piece.begin + os::page_bytes();
  }
  return 0;
}

// Returns whether ENOMEM means "over the limit": it also means "not mapped" and "not accessible", but closing other
// registrations helps only against the limit. Locking on fault checks the limit and touches no page. The caller unlocks
// the pages.
bool is_over_limit(const range& pages) noexcept {
  if (::syscall(SYS_mlock2, pages.begin, pages.size(), MLOCK_ONFAULT) == 0) return false;  // not accessible
  return ::msync(reinterpret_cast<void*>(pages.begin), pages.size(), MS_ASYNC) == 0;       // else: not mapped
}

// msync(2) with MS_INVALIDATE returns EBUSY if a memory lock exists, and alone does nothing else on Linux. It returns
// ENOMEM if nothing is locked and some pages are not mapped.
int ask_for_locks(const range& pages) noexcept {
  return ::syscall(SYS_msync, pages.begin, pages.size(), MS_INVALIDATE) == 0 ? 0 : errno;
}

}  // namespace

// Uses no function-local static variable and no lock: a child could inherit either in use by another thread.
table& table::here() {
  static constinit std::atomic<table*> current{nullptr};
  table* found = current.load(std::memory_order_acquire);
  const auto process = os::this_process();
  if (found != nullptr && found->process_ == process) return *found;
  std::unique_ptr<table> fresh(new table(process));
  fresh->before_ = found;
  if (current.compare_exchange_strong(found, fresh.get(), std::memory_order_acq_rel)) return *fresh.release();
  return *found;  // another thread was faster
}

bool table::is_of_this_process() const noexcept { return process_ == os::this_process(); }

// Visits the parts of `pages` that no registration holds and the program had not locked.
template <class Use>
int table::for_each_to_unlock(const range& pages, Use&& use) const noexcept {
  return held_.for_each_gap(pages, [&](const range& free) { return programs_.for_each_gap(free, use); });
}

// Records the program's locks. A lock covers a whole mapping; if the kernel does not report its end (before Linux
// 6.11), the table checks page by page.
void table::note_programs(const range& pages) {
  if (ask_for_locks(pages) != EBUSY) return;
  const detail::own_maps maps;
  for (auto at = pages.begin; at < pages.end;) {
    const auto there = detail::mapping_at(maps, at);
    const range piece{at, std::min(pages.end, there ? there->end : at + os::page_bytes())};
    const int locked = ask_for_locks(piece);
    if (locked == ENOMEM) return;  // the kernel will refuse to lock them all
    if (locked == EBUSY) programs_.add(range_list::make(piece));
    at = piece.end;
  }
}

// Forgets the program's locks that overlap `pages` and no registration. All others are under a registration.
void table::forget_programs(const range& pages) noexcept {
  programs_.remove_if(
      [&](const range& its) { return its.begin < pages.end && pages.begin < its.end && !held_.any_overlaps(its); });
}

refusal table::lock(const range& pages) {
  auto made = range_list::make(pages);
  const std::scoped_lock guard(mutex_);
  refusal why;
  try {
    held_.for_each_gap(pages, [this](const range& free) { return note_programs(free), 0; });
    why.native = lock_pages(pages);
  } catch (const std::bad_alloc&) {
    forget_programs(pages);
    throw;
  }
  if (why.native == 0) {
    held_.add(std::move(made));
    return why;
  }
  why.over_limit = why.native == ENOMEM && is_over_limit(pages);
  static_cast<void>(for_each_to_unlock(pages, unlock_pages));  // munlock(2) stops where mlock(2) stopped
  forget_programs(pages);
  return why;
}

int table::unlock(const range& pages) noexcept {
  const std::scoped_lock guard(mutex_);
  auto gone = held_.take(pages);
  if (gone.empty()) return EINVAL;
  if (const int native = for_each_to_unlock(pages, unlock_all_pages); native != 0) {
    held_.add(std::move(gone));
    return native;
  }
  forget_programs(pages);
  return 0;
}

}  // namespace pinfold::mlocks
