// SPDX-License-Identifier: BSD-3-Clause
#include "inspection/memory.hpp"

#include "inspection/text.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

// System calls by number: libc's functions are cancellation points.
namespace pinfold::inspection {

namespace {

constexpr std::size_t bytes_of_step = 4096;

// Opens this process's memory by the calling thread: the main thread may have ended, and /proc may belong to another
// PID namespace.
int open_memory_of(int process) noexcept {
  text<32> path;
  path << "/proc/";
  process != 0 ? path << process : path << "thread-self";
  path << "/mem";
  return static_cast<int>(::syscall(SYS_openat, AT_FDCWD, path.terminated(), O_RDONLY | O_CLOEXEC));
}

// Returns whether process_vm_readv(2) can replace the file: without a descriptor or /proc. For this process it always
// can: root owns the file of a process that is not dumpable (prctl(2)), such as one with file capabilities.
bool other_way(int process, int failure) noexcept {
  return process == 0 || failure == EMFILE || failure == ENFILE || failure == ENOENT;
}

}  // namespace

memory::memory(int process) noexcept : thread_(process != 0 ? process : static_cast<int>(::syscall(SYS_gettid))) {
  file_ = open_memory_of(process);
  if (file_ >= 0) return;
  failure_ = errno;
  if (!other_way(process, failure_)) return;
  char probe = 0;
  failure_ = copy(reinterpret_cast<std::uintptr_t>(&probe), &probe, 1) < 0 && errno != EFAULT ? errno : 0;
}

memory::~memory() {
  if (file_ >= 0) ::syscall(SYS_close, file_);
}

long memory::copy(std::uintptr_t from, void* into, std::size_t bytes) const noexcept {
  if (!parts_.empty()) {
    const auto part = std::ranges::upper_bound(parts_, from, {}, &part::end);
    if (part == parts_.end() || from < part->begin) return 0;
    bytes = std::min(bytes, part->end - from);
    from = from - part->begin + part->offset;
  }
  if (file_ >= 0) return ::syscall(SYS_pread64, file_, into, bytes, from);
  const iovec here{into, bytes};
  const iovec there{reinterpret_cast<void*>(from), bytes};
  // 64-bit arguments: of a shorter one on the stack, the kernel would also read the bytes beside it.
  return ::syscall(SYS_process_vm_readv, thread_, &here, 1UL, &there, 1UL, 0UL);
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
