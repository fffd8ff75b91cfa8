// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/userfaultfd_leave.hpp"

#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace pinfold::monitors::uffd {

namespace {

std::atomic<pid_t> owner{0};

bool belongs_to_owner(int uffd) noexcept {
  f_owner_ex noted{};
  return ::syscall(SYS_fcntl, uffd, F_GETOWN_EX, &noted) == 0 && noted.type == F_OWNER_TID &&
         noted.pid == owner.load(std::memory_order_relaxed);
}

}  // namespace

void leave_for(pid_t thread) noexcept { owner.store(thread, std::memory_order_relaxed); }

// By number: other libraries put functions of their own in the place of the C library's.
//
// To stop watching for write protection walks the page tables, for as long as a third of the munmap; to stop watching
// for missing pages does not. And to ask for that first fails where another userfaultfd watches, which until Linux 6.15
// one could stop.
void leave(int uffd, const range& pages) noexcept {
  const int before = errno;
  uffdio_register other{
      .range = {.start = pages.begin, .len = pages.size()}, .mode = UFFDIO_REGISTER_MODE_MISSING, .ioctls = 0};
  errno = 0;
  const bool changed = belongs_to_owner(uffd) && ::syscall(SYS_ioctl, uffd, UFFDIO_REGISTER, &other) == 0;
  if (changed || errno == ENOMEM) {  // no room for more mappings: some may have been changed
    uffdio_range all{.start = pages.begin, .len = pages.size()};
    ::syscall(SYS_ioctl, uffd, UFFDIO_UNREGISTER, &all);
  }
  errno = before;
}

}  // namespace pinfold::monitors::uffd
