// SPDX-License-Identifier: BSD-3-Clause
#include "registrars/mlock_table.hpp"

#include "procmap.hpp"

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

// Raw system calls: the sanitizers replace the functions of the C library by ones that do nothing.
int lock_pages(const range& pages) noexcept { return ::syscall(SYS_mlock, pages.begin, pages.size()) == 0 ? 0 : errno; }

// What there is of them, up to the first that is not mapped.
int unlock_pages(const range& pages) noexcept {
  return ::syscall(SYS_munlock, pages.begin, pages.size()) == 0 ? 0 : errno;
}

// 0 when nothing of the pages is locked any more, though some may not be mapped any more. As many calls as pages, so
// only for what was all mapped once.
int unlock_all_pages(const range& pages) noexcept {
  const int native = unlock_pages(pages);
  if (native != ENOMEM) return native;
  for (auto at = pages.begin; at < pages.end; at += page_bytes())
    if (const int left = unlock_pages({at, at + page_bytes()}); left != 0 && left != ENOMEM) return left;
  return 0;
}

// ENOMEM means "over the limit", "not mapped" and "not accessible"; only the first can be helped by closing others.
// Locking what is faulted in later checks the limit, but touches nothing. The caller unlocks what this locks.
bool is_over_limit(const range& pages) noexcept {
  if (::syscall(SYS_mlock2, pages.begin, pages.size(), MLOCK_ONFAULT) == 0) return false;  // not accessible
  return ::msync(reinterpret_cast<void*>(pages.begin), pages.size(), MS_ASYNC) == 0;       // else: not mapped
}

// msync(2): EBUSY for MS_INVALIDATE where a memory lock exists. Alone it does nothing else on Linux.
// ENOMEM where nothing is locked, and not all is mapped.
int ask_for_locks(const range& pages) noexcept {
  return ::syscall(SYS_msync, pages.begin, pages.size(), MS_INVALIDATE) == 0 ? 0 : errno;
}

}  // namespace

std::uintptr_t page_bytes() noexcept { return static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE)); }

// Not a static variable of a function, and without a lock: a fork must not leave either held in the child.
table& table::here() {
  static constinit std::atomic<table*> current{nullptr};
  table* found = current.load(std::memory_order_acquire);
  const pid_t process = ::getpid();
  if (found != nullptr && found->process_ == process) return *found;
  std::unique_ptr<table> fresh(new table(process));
  fresh->before_ = found;
  if (current.compare_exchange_strong(found, fresh.get(), std::memory_order_acq_rel)) return *fresh.release();
  return *found;  // another thread was faster
}

bool table::is_of_this_process() const noexcept { return process_ == ::getpid(); }

// What no registration holds, without what the program had locked.
template <class Use>
int table::for_each_to_unlock(const range& pages, Use&& use) const noexcept {
  return held_.for_each_gap(pages, [&](const range& free) { return programs_.for_each_gap(free, use); });
}

// Locks are of mappings as a whole; where the kernel does not tell their ends (before Linux 6.11), page by page.
void table::note_programs(const range& pages) {
  if (ask_for_locks(pages) != EBUSY) return;
  const detail::own_maps maps;
  for (auto at = pages.begin; at < pages.end;) {
    const auto there = detail::mapping_at(maps, at);
    const range piece{at, std::min(pages.end, there ? there->end : at + page_bytes())};
    const int locked = ask_for_locks(piece);
    if (locked == ENOMEM) return;  // the kernel will refuse to lock them all
    if (locked == EBUSY) programs_.add(range_list::make(piece));
    at = piece.end;
  }
}

// Of those that overlap `pages`: all others are under a registration.
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
  static_cast<void>(for_each_to_unlock(pages, unlock_pages));  // mlock(2) stopped where this will
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
