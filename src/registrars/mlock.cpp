// SPDX-License-Identifier: BSD-3-Clause
#include <pinfold/registrars/mlock.hpp>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

namespace pinfold {

static_assert(registrar<mlock_registrar>);

namespace {

std::uintptr_t page_bytes() noexcept {
  static const auto bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

range pages_of(const range& memory) noexcept {
  const auto page = page_bytes();
  const auto end = memory.end > UINTPTR_MAX - (page - 1) ? memory.end : (memory.end + page - 1) / page * page;
  return {memory.begin / page * page, end};
}

// What this process has locked, as the kernel counts it.
std::size_t locked_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "VmLck:") continue;
    std::size_t kilobytes = 0;
    status >> kilobytes;
    return kilobytes * 1024;
  }
  return 0;
}

// ENOMEM means "over the limit", "not mapped" and "not accessible"; only the first can be helped by closing others.
bool is_over_limit(const range& pages) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return false;
  return locked_bytes() + pages.size() > limit.rlim_cur;
}

error refused(const range& pages, int native) {
  if (native == EPERM) return {errc::not_permitted, native_kind::posix, native, "this process may not lock memory"};
  if (native == EAGAIN || (native == ENOMEM && is_over_limit(pages))) {
    return {errc::out_of_resources, native_kind::posix, native, "no room in the locked-memory limit"};
  }
  if (native == ENOMEM) return {errc::invalid_range, native_kind::posix, native, "memory that cannot be accessed"};
  return {errc::driver_error, native_kind::posix, native, "the kernel refused to lock the memory"};
}

}  // namespace

/// What is registered: registrations by their first page. Guard: the mutex, for everything, system calls included.
struct mlock_registrar::state {
  std::mutex mutex;
  std::multimap<std::uintptr_t, std::uintptr_t> held;

  // Unlocks what of `pages` no other registration holds.
  int unlock(const range& pages) noexcept {
    auto from = pages.begin;
    for (const auto& [begin, end] : held) {
      if (begin >= pages.end) break;
      if (end <= from) continue;
      if (begin > from && ::munlock(reinterpret_cast<void*>(from), begin - from) != 0) return errno;
      from = std::max(from, end);
      if (from >= pages.end) return 0;
    }
    return ::munlock(reinterpret_cast<void*>(from), pages.end - from) == 0 ? 0 : errno;
  }
};

mlock_registrar::mlock_registrar() : state_(std::make_unique<state>()) {}
mlock_registrar::mlock_registrar(mlock_registrar&&) noexcept = default;
mlock_registrar& mlock_registrar::operator=(mlock_registrar&&) noexcept = default;

mlock_registrar::~mlock_registrar() {
  if (!state_) return;
  for (const auto& [begin, end] : state_->held) ::munlock(reinterpret_cast<void*>(begin), end - begin);
}

registrar_limits mlock_registrar::limits() const noexcept {
  return {.granularity = page_bytes(), .supported = local_access};
}

result<mlock_registrar::registration_type> mlock_registrar::open(range memory, rights /*access*/) noexcept try {
  const range pages = pages_of(memory);
  std::multimap<std::uintptr_t, std::uintptr_t> made{{pages.begin, pages.end}};  // allocated before the lock is taken
  const std::scoped_lock guard(state_->mutex);
  if (::mlock(reinterpret_cast<void*>(pages.begin), pages.size()) != 0) {
    const int native = errno;
    const error why = refused(pages, native);
    static_cast<void>(state_->unlock(pages));  // it may have locked a part; what fails here was not mapped
    return tl::unexpected(why);
  }
  state_->held.merge(made);
  return registration_type{pages.begin, pages.end};
} catch (const std::bad_alloc&) {
  return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the registrar's own records");
}

result<void> mlock_registrar::close(const registration_type& registration) noexcept {
  std::multimap<std::uintptr_t, std::uintptr_t>::node_type gone;  // freed after the lock
  const std::scoped_lock guard(state_->mutex);
  const auto [first, last] = state_->held.equal_range(registration.begin);
  const auto found = std::find_if(first, last, [&](const auto& one) { return one.second == registration.end; });
  if (found == last) return fail(errc::invalid_argument, "this range is not registered");
  gone = state_->held.extract(found);
  const int native = state_->unlock({registration.begin, registration.end});
  if (native == 0 || native == ENOMEM) return {};  // ENOMEM: unmapped meanwhile, and so not locked any more
  state_->held.insert(std::move(gone));
  return fail_errno(errc::driver_error, native, "the kernel refused to unlock the memory");
}

}  // namespace pinfold
