// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// One system call, made in each of the ways that a program has.
#pragma once

#include "support/host/raw_calls.hpp"
#include "support/host/sanitized.hpp"
#include "vocabulary.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <liburing.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

namespace pinfold::testing::hazard_fuzz {

/// A call with its arguments in the kernel's order.
struct kernel_call {
  long number;
  std::uintptr_t a = 0;
  std::uintptr_t b = 0;
  long c = 0;
  long d = 0;
  long e = 0;

  [[nodiscard]] void* address() const { return reinterpret_cast<void*>(a); }
};

/// Makes the call by libc's own function; returns whether it succeeded.
inline bool call_libc(const kernel_call& what) {
  const auto c = static_cast<int>(what.c), d = static_cast<int>(what.d), e = static_cast<int>(what.e);
  switch (what.number) {
    case SYS_munmap: return ::munmap(what.address(), what.b) == 0;
    case SYS_mmap: return ::mmap(what.address(), what.b, c, d, e, 0) != MAP_FAILED;
    case SYS_mremap: return ::mremap(what.address(), what.b, static_cast<std::size_t>(what.c), d, what.e) != MAP_FAILED;
    case SYS_madvise: return ::madvise(what.address(), what.b, c) == 0;
    case SYS_mprotect: return ::mprotect(what.address(), what.b, c) == 0;
    case SYS_shmat:
      return ::shmat(static_cast<int>(what.a), reinterpret_cast<void*>(what.b), c) != reinterpret_cast<void*>(-1);
    case SYS_shmdt: return ::shmdt(what.address()) == 0;
    case SYS_remap_file_pages:
      return ::remap_file_pages(what.address(), what.b, c, static_cast<std::size_t>(what.d), e) == 0;
    case SYS_fallocate: return ::fallocate(static_cast<int>(what.a), static_cast<int>(what.b), what.c, what.d) == 0;
    case SYS_ftruncate: return ::ftruncate(static_cast<int>(what.a), static_cast<off_t>(what.b)) == 0;
    default: return false;
  }
}

inline bool call_inline(const kernel_call& what) {
  const long answer = raw_call(what.number, what.address(), what.b, what.c, what.d, what.e);
  return answer >= 0 || answer < -4095;
}

inline bool call_syscall_function(const kernel_call& what) {
  return ::syscall(what.number, what.a, what.b, what.c, what.d, what.e, 0L) != -1;
}

/// A ring of the calling thread, used only for events.
class event_ring {
 public:
  event_ring() : works_(::io_uring_queue_init(2, &ring_, 0) == 0) {}
  event_ring(const event_ring&) = delete;
  event_ring& operator=(const event_ring&) = delete;
  ~event_ring() {
    if (works_) ::io_uring_queue_exit(&ring_);
  }

  bool call(const kernel_call& what) {
    if (!works_) return false;
    ::io_uring_sqe* const entry = ::io_uring_get_sqe(&ring_);
    if (what.number == SYS_madvise)
      ::io_uring_prep_madvise(entry, what.address(), static_cast<off_t>(what.b), static_cast<int>(what.c));
    else
      ::io_uring_prep_fallocate(entry, static_cast<int>(what.a), static_cast<int>(what.b), what.c, what.d);
    ::io_uring_submit_and_wait(&ring_, 1);
    ::io_uring_cqe* done = nullptr;
    if (::io_uring_peek_cqe(&ring_, &done) != 0) return false;
    const bool succeeded = done->res >= 0;
    ::io_uring_cqe_seen(&ring_, done);
    return succeeded;
  }

 private:
  ::io_uring ring_{};
  bool works_;
};

/// Makes madvise(2) on this process by process_madvise(2).
template <bool Inline>
bool call_process_madvise(const kernel_call& what) {
  static const int self = static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0));
  if (what.number != SYS_madvise || self < 0) return false;
  const iovec memory{what.address(), what.b};
  const auto descriptor = static_cast<std::uintptr_t>(self), vector = reinterpret_cast<std::uintptr_t>(&memory);
  const kernel_call same{SYS_process_madvise, descriptor, vector, 1, what.c, 0};
  return Inline ? call_inline(same) : call_syscall_function(same);
}

/// Makes the call in a child that shares this process's memory, as that of vfork(2); the thread waits for its end.
template <bool (*Call)(const kernel_call&)>
bool call_in_vfork_child(const kernel_call& what) {
  alignas(16) static thread_local std::array<std::byte, 32768> stack;
  const auto body = [](void* of) { return Call(*static_cast<const kernel_call*>(of)) ? 0 : 1; };
  kernel_call copy = what;
  const pid_t child = ::clone(body, stack.data() + stack.size(), CLONE_VM | CLONE_VFORK | SIGCHLD, &copy);
  int status = -1;
  if (child < 0) return false;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status == 0;
}

/// Returns whether the call can be made in this way at all.
inline bool can_make(mechanism via, long number) {
  switch (via) {
    case mechanism::libc:
    case mechanism::syscall_function:
    case mechanism::vfork_libc: return true;
    case mechanism::inline_syscall:
    case mechanism::vfork_inline: return has_raw_calls;
    // ThreadSanitizer does not see the unmapping of rings, and takes those of two threads for one.
    case mechanism::io_uring: return !thread_sanitized && (number == SYS_madvise || number == SYS_fallocate);
    case mechanism::process_madvise: return number == SYS_madvise;
    case mechanism::process_madvise_inline: return has_raw_calls && number == SYS_madvise;
    case mechanism::other_process: return number == SYS_fallocate || number == SYS_ftruncate;
  }
  return false;
}

/// Makes the call on the calling thread, by any mechanism but `other_process`.
inline bool make_call(mechanism via, const kernel_call& what) {
  switch (via) {
    case mechanism::libc: return call_libc(what);
    case mechanism::syscall_function: return call_syscall_function(what);
    case mechanism::inline_syscall: return call_inline(what);
    case mechanism::io_uring: {
      static thread_local event_ring ring;
      return ring.call(what);
    }
    case mechanism::process_madvise: return call_process_madvise<false>(what);
    case mechanism::process_madvise_inline: return call_process_madvise<true>(what);
    case mechanism::vfork_libc: return call_in_vfork_child<call_libc>(what);
    case mechanism::vfork_inline: return call_in_vfork_child<call_inline>(what);
    case mechanism::other_process: return false;
  }
  return false;
}

}  // namespace pinfold::testing::hazard_fuzz
