// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/userfaultfd/kernel.hpp"

#include "os/check.hpp"
#include "os/file.hpp"
#include "os/page_bytes.hpp"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace pinfold::monitors::uffd {

namespace {

// Constants of Linux 5.11 and 6.7, which older headers lack.
constexpr int user_mode_only = 1;
constexpr std::uint64_t wp_hugetlbfs_shmem = 1U << 12U;
constexpr std::uint64_t wp_unpopulated = 1U << 13U;
constexpr std::uint64_t wp_async = 1U << 15U;

constexpr std::uint64_t wanted = UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_EVENT_UNMAP | UFFD_FEATURE_EVENT_REMOVE |
                                 UFFD_FEATURE_EVENT_REMAP | wp_hugetlbfs_shmem | wp_unpopulated | wp_async;

tl::unexpected<error> open_refused(int native) noexcept {
  switch (native) {
    case ENOSYS: return fail_errno(errc::unsupported, native, "this kernel has no userfaultfd");
    case EINVAL: return fail_errno(errc::unsupported, native, "this kernel's userfaultfd is too old (Linux 6.7)");
    case EPERM:
    case EACCES: return fail_errno(errc::not_permitted, native, "this process may not use userfaultfd");
    default: return fail_errno(errc::out_of_resources, native, "cannot create a userfaultfd");
  }
}

// A userfaultfd sends no signal, so this one is never sent. It is the last signal, which programs hardly use.
const int mark_signal = SIGRTMAX;

range between(std::uint64_t begin, std::uint64_t bytes) noexcept {
  return {static_cast<std::uintptr_t>(begin), static_cast<std::uintptr_t>(begin + bytes)};
}

range page_at(std::uint64_t address) noexcept {
  const auto bytes = std::uint64_t{os::page_bytes()};
  return between(address & ~(bytes - 1), bytes);
}

event meaning_of(const uffd_msg& message) noexcept {
  switch (message.event) {
    case UFFD_EVENT_UNMAP:
    case UFFD_EVENT_REMOVE:
      return {.gone = between(message.arg.remove.start, message.arg.remove.end - message.arg.remove.start)};
    case UFFD_EVENT_REMAP:
      return {.gone = between(message.arg.remap.from, message.arg.remap.len),
              .replaced = between(message.arg.remap.to, message.arg.remap.len)};
    case UFFD_EVENT_PAGEFAULT: return {.awaited = page_at(message.arg.pagefault.address)};
    default: return {.gone = {0, UINTPTR_MAX}};  // no other event was requested
  }
}

}  // namespace

descriptor descriptor::of(int fresh) noexcept {
  fresh = os::above_standard(fresh);
  struct stat seen{};
  if (fresh < 0 || ::fstat(fresh, &seen) != 0) return {.number = fresh};
  return {.number = fresh, .device = seen.st_dev, .inode = seen.st_ino};
}

void descriptor::mark() noexcept {
  PINFOLD_ASSERT(number >= 0, "an open file is marked");
  marked = ::fcntl(number, F_SETSIG, mark_signal) == 0;
}

void descriptor::belong_to(pid_t thread) noexcept {
  PINFOLD_ASSERT(number >= 0 && thread > 0, "an open file belongs to a thread that runs");
  const f_owner_ex named{.type = F_OWNER_TID, .pid = thread};
  owner = ::fcntl(number, F_SETOWN_EX, &named) == 0 ? thread : 0;
}

bool descriptor::is_this() const noexcept {
  if (owner == 0) return looks_like_this();
  f_owner_ex noted{};
  return ::fcntl(number, F_GETOWN_EX, &noted) == 0 && noted.type == F_OWNER_TID && noted.pid == owner;
}

// The kernel reports no owner once that thread has ended.
bool descriptor::is_this_or_left() const noexcept {
  f_owner_ex noted{};
  return looks_like_this() && ::fcntl(number, F_GETOWN_EX, &noted) == 0 && (noted.pid == 0 || noted.pid == owner);
}

bool descriptor::looks_like_this() const noexcept {
  struct stat seen{};
  const bool same_inode = number >= 0 && ::fstat(number, &seen) == 0 && seen.st_ino == inode && seen.st_dev == device;
  return same_inode && (!marked || ::fcntl(number, F_GETSIG) == mark_signal);
}

void descriptor::close() noexcept {
  owner = 0;
  if (is_this()) ::close(number);
  number = -1;
}

namespace {

// If a filter refuses the system call, as in containers, opens it through the device of Linux 6.1, whose owner controls
// access.
int open_by_device(int flags) noexcept {
  constexpr unsigned long make_new = _IO(0xAA, 0);
  const os::file device(::open("/dev/userfaultfd", O_RDWR | O_CLOEXEC));
  return device ? ::ioctl(device.number(), make_new, flags) : -1;
}

// Only faults in the kernel need privileges, and this userfaultfd handles no faults.
int open_anyhow() noexcept {
  constexpr int flags = O_CLOEXEC | O_NONBLOCK | user_mode_only;
  const int made = static_cast<int>(::syscall(SYS_userfaultfd, flags));
  if (made >= 0 || (errno != EPERM && errno != ENOSYS)) return made;
  const int why_not = errno;
  const int other = open_by_device(flags);
  errno = why_not;
  return other;
}

}  // namespace

result<descriptor> open() noexcept {
  auto opened = descriptor::of(open_anyhow());
  if (opened.number < 0) return open_refused(errno);
  uffdio_api argument{.api = UFFD_API, .features = wanted, .ioctls = 0};
  if (::ioctl(opened.number, UFFDIO_API, &argument) == 0) return opened;
  const int native = errno;
  opened.close();
  return open_refused(native);
}

// System calls by number: other libraries replace the C library's functions, and theirs might allocate, or wait for a
// thread that waits for this one.
int poll_events(int uffd) noexcept {
  pollfd on{.fd = uffd, .events = POLLIN, .revents = 0};
  if (::syscall(SYS_ppoll, &on, 1, nullptr, nullptr, 0) < 0) return errno == EINTR ? 0 : errno;
  if ((on.revents & ~POLLIN) == 0) return 0;
  ::syscall(SYS_fcntl, uffd, F_SETFL, O_NONBLOCK);  // the program may have changed it, and the next read must not wait
  return EBADF;
}

event read_event(int uffd) noexcept {
  uffd_msg message;
  const auto bytes = ::syscall(SYS_read, uffd, &message, sizeof message);
  return bytes < 0 ? event{.native = errno} : meaning_of(message);
}

void let_go_on(int uffd, const range& pages) noexcept {
  PINFOLD_ASSERT(pages.begin < pages.end, "a thread waits for a page");
  uffdio_register again{
      .range = {.start = pages.begin, .len = pages.size()}, .mode = UFFDIO_REGISTER_MODE_WP, .ioctls = 0};
  ::syscall(SYS_ioctl, uffd, UFFDIO_REGISTER, &again);
  uffdio_range waiting{.start = pages.begin, .len = pages.size()};
  ::syscall(SYS_ioctl, uffd, UFFDIO_WAKE, &waiting);
}

int start_watching(int uffd, const range& pages) noexcept {
  PINFOLD_ASSERT(pages.begin < pages.end, "there are pages to watch");
  uffdio_register argument{
      .range = {.start = pages.begin, .len = pages.size()}, .mode = UFFDIO_REGISTER_MODE_WP, .ioctls = 0};
  return ::syscall(SYS_ioctl, uffd, UFFDIO_REGISTER, &argument) == 0 ? 0 : errno;
}

int stop_watching(int uffd, const range& pages) noexcept {
  PINFOLD_ASSERT(pages.begin < pages.end, "there are pages that leave the watch");
  uffdio_range argument{.start = pages.begin, .len = pages.size()};
  return ::syscall(SYS_ioctl, uffd, UFFDIO_UNREGISTER, &argument) == 0 ? 0 : errno;
}

// Makes an invalid request. The kernel checks for events in flight before it checks the request.
traffic traffic_on(int uffd) noexcept {
  uffdio_writeprotect senseless{.range = {.start = 1, .len = 1}, .mode = 0};
  if (::syscall(SYS_ioctl, uffd, UFFDIO_WRITEPROTECT, &senseless) == 0) return traffic::unknown;
  if (errno == EAGAIN) return traffic::some;
  return errno == EINVAL ? traffic::none : traffic::unknown;
}

}  // namespace pinfold::monitors::uffd
