// SPDX-License-Identifier: BSD-3-Clause
#include <pinfold/registrars/mlock.hpp>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <new>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace pinfold {

static_assert(registrar<mlock_registrar>);

namespace {

std::uintptr_t page_bytes() noexcept { return static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE)); }

range pages_of(const range& memory) noexcept {
  const auto page = page_bytes();
  const auto end = memory.end > UINTPTR_MAX - (page - 1) ? memory.end : (memory.end + page - 1) / page * page;
  return {memory.begin / page * page, end};
}

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

error refused(const range& pages, int native) noexcept {
  if (native == EPERM) return {errc::not_permitted, native_kind::posix, native, "this process may not lock memory"};
  if (native == EAGAIN || (native == ENOMEM && is_over_limit(pages))) {
    return {errc::out_of_resources, native_kind::posix, native, "no room in the locked-memory limit"};
  }
  if (native == ENOMEM) return {errc::invalid_range, native_kind::posix, native, "memory that cannot be accessed"};
  return {errc::driver_error, native_kind::posix, native, "the kernel refused to lock the memory"};
}

tl::unexpected<error> moved_away() noexcept { return fail(errc::closed, "this registrar was moved from"); }

}  // namespace

/// What is registered: registrations by their first page. Guard: the mutex, for everything, system calls included.
struct mlock_registrar::state {
  std::mutex mutex;
  std::multimap<std::uintptr_t, std::uintptr_t> held;

  state() = default;
  state(const state&) = delete;
  state& operator=(const state&) = delete;
  ~state() {
    for (const auto& [begin, end] : held) unlock_all_pages({begin, end});
  }

  // Unlocks, in that way, what of `pages` no registration holds.
  template <class Way>
  int unlock(const range& pages, Way way) noexcept {
    auto from = pages.begin;
    for (const auto& [begin, end] : held) {
      if (begin >= pages.end) break;
      if (end <= from) continue;
      if (begin > from)
        if (const int native = way({from, begin}); native != 0) return native;
      from = std::max(from, end);
      if (from >= pages.end) return 0;
    }
    return way({from, pages.end});
  }
};

mlock_registrar::mlock_registrar() : state_(std::make_unique<state>()) {}
mlock_registrar::mlock_registrar(mlock_registrar&&) noexcept = default;
mlock_registrar& mlock_registrar::operator=(mlock_registrar&&) noexcept = default;

mlock_registrar::~mlock_registrar() = default;

registrar_limits mlock_registrar::limits() const noexcept {
  return {.granularity = page_bytes(), .supported = local_access};
}

result<mlock_registrar::registration_type> mlock_registrar::open(range memory, rights access) noexcept try {
  if (!state_) return moved_away();
  if (auto fit = check_request(limits(), memory, access); !fit) return tl::unexpected(fit.error());
  const range pages = pages_of(memory);
  std::multimap<std::uintptr_t, std::uintptr_t> made{{pages.begin, pages.end}};  // allocated before the lock is taken
  const std::scoped_lock guard(state_->mutex);
  if (const int native = lock_pages(pages); native != 0) {
    const error why = refused(pages, native);
    static_cast<void>(state_->unlock(pages, unlock_pages));  // mlock(2) stopped where this will
    return tl::unexpected(why);
  }
  state_->held.merge(made);
  return registration_type{pages.begin, pages.end};
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the registrar's own records");
}

result<void> mlock_registrar::close(const registration_type& registration) noexcept {
  if (!state_) return moved_away();
  std::multimap<std::uintptr_t, std::uintptr_t>::node_type gone;  // freed after the lock
  const std::scoped_lock guard(state_->mutex);
  const auto [first, last] = state_->held.equal_range(registration.begin);
  const auto found = std::find_if(first, last, [&](const auto& one) { return one.second == registration.end; });
  if (found == last) return fail(errc::invalid_argument, "this range is not registered");
  gone = state_->held.extract(found);
  const int native = state_->unlock({registration.begin, registration.end}, unlock_all_pages);
  if (native == 0) return {};
  state_->held.insert(std::move(gone));
  return fail_errno(errc::driver_error, native, "the kernel refused to unlock the memory");
}

}  // namespace pinfold
