// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/userfaultfd/unregister.hpp"

#include "os/check.hpp"

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

void leave_for(pid_t thread) noexcept {
  PINFOLD_ASSERT(thread > 0, "the owner is a thread that runs");
  owner.store(thread, std::memory_order_relaxed);
}

// System calls by number: other libraries replace the C library's functions.
//
// To stop watching for write protection, the kernel walks the page tables, for a third of the time of the munmap; to
// stop watching for missing pages, it does not. Also, the request to watch for missing pages fails if another
// userfaultfd watches the pages, whose watch unregistering would end until Linux 6.15.
void leave(int uffd, const range& pages) noexcept {
  PINFOLD_ASSERT(pages.begin < pages.end, "there are pages that leave the watch");
  const int before = errno;
  uffdio_register other{
      .range = {.start = pages.begin, .len = pages.size()}, .mode = UFFDIO_REGISTER_MODE_MISSING, .ioctls = 0};
  errno = 0;
  const bool changed = belongs_to_owner(uffd) && ::syscall(SYS_ioctl, uffd, UFFDIO_REGISTER, &other) == 0;
  if (changed || errno == ENOMEM) {  // ENOMEM: no room for more mappings; some may have changed
    uffdio_range all{.start = pages.begin, .len = pages.size()};
    ::syscall(SYS_ioctl, uffd, UFFDIO_UNREGISTER, &all);
  }
  errno = before;
}

}  // namespace pinfold::monitors::uffd
