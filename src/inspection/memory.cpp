// SPDX-License-Identifier: BSD-3-Clause
#include "inspection/memory.hpp"

#include "inspection/text.hpp"

#include <cerrno>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

// System calls by number: libc's functions are cancellation points.
namespace pinfold::inspection {

namespace {

constexpr std::size_t bytes_of_step = 4096;

int open_memory_of(int process) noexcept {
  text<32> path;
  path << "/proc/" << process << "/mem";
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path.terminated(), O_RDONLY | O_CLOEXEC));
}

// Without a descriptor or /proc, the same can be read another way.
bool other_way(int failure) noexcept { return failure == EMFILE || failure == ENFILE || failure == ENOENT; }

}  // namespace

memory::memory(int process) noexcept : process_(process != 0 ? process : static_cast<int>(::syscall(SYS_getpid))) {
  file_ = open_memory_of(process_);
  if (file_ >= 0) return;
  failure_ = errno;
  if (!other_way(failure_)) return;
  char probe = 0;
  failure_ = copy(reinterpret_cast<std::uintptr_t>(&probe), &probe, 1) < 0 && errno != EFAULT ? errno : 0;
}

memory::~memory() {
  if (file_ >= 0) ::syscall(SYS_close, file_);
}

long memory::copy(std::uintptr_t from, void* into, std::size_t bytes) const noexcept {
  if (file_ >= 0) return ::syscall(SYS_pread64, file_, into, bytes, from);
  const iovec here{into, bytes};
  const iovec there{reinterpret_cast<void*>(from), bytes};
  // Numbers of 64 bits: of a shorter one that is passed on the stack, the kernel would read what lies beside it too.
  return ::syscall(SYS_process_vm_readv, process_, &here, 1UL, &there, 1UL, 0UL);
}

bool memory::read(std::uintptr_t from, void* into, std::size_t bytes) noexcept {
  auto* to = static_cast<char*>(into);
  while (bytes > 0) {
    if (exhausted()) return false;
    spend(1 + bytes / bytes_of_step);
    const auto copied = copy(from, to, bytes);
    if (copied < 0 && errno == EINTR) continue;
    if (copied <= 0) return false;
    to += copied;
    from += static_cast<std::uintptr_t>(copied);
    bytes -= static_cast<std::size_t>(copied);
  }
  return true;
}

}  // namespace pinfold::inspection
