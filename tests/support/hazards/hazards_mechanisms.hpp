// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory events that are caused in unusual ways: by a second libc, by process_madvise, by several threads at once.
#pragma once

#include "support/hazards/hazards_memory.hpp"
#include "support/host/sanitized.hpp"

#include <atomic>
#include <dlfcn.h>
#include <sys/uio.h>
#include <thread>

namespace pinfold::testing::hazards {

/// madvise DONTNEED by process_madvise(2) of this process.
template <bool Raw>
bool process_discards(const target& at) {
  const int self = static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0));
  if (self < 0) return false;
  const iovec memory{at.data, at.bytes};
  const auto descriptor = static_cast<std::uintptr_t>(self), vector = reinterpret_cast<std::uintptr_t>(&memory);
  const long done = Raw ? raw_call(SYS_process_madvise, reinterpret_cast<void*>(descriptor), vector, 1, MADV_DONTNEED)
                        : ::syscall(SYS_process_madvise, descriptor, vector, 1L, static_cast<long>(MADV_DONTNEED), 0L);
  ::close(self);
  return done == static_cast<long>(at.bytes);
}

/// Unmaps by a second libc, as plug-ins have that are loaded with dlmopen(3).
inline bool second_libc_unmaps(const target& at) {
  if (sanitized) return false;
  void* const second = ::dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW | RTLD_LOCAL);
  if (second == nullptr) return false;
  const auto unmap = reinterpret_cast<int (*)(void*, std::size_t)>(::dlsym(second, "munmap"));
  return unmap != nullptr && unmap(at.data, at.bytes) == 0;
}

inline bool set_break_inline(std::byte* to) {
  return raw_call(SYS_brk, to, 0) == static_cast<long>(reinterpret_cast<std::uintptr_t>(to));
}

/// Moves the break by inline calls, as a library does that has taken over sbrk(3).
inline answer break_moves_inline(stage& on) {
  if (sanitized || !has_raw_calls) return answer::unknown_here;
  auto* const end = static_cast<std::byte*>(::sbrk(0));
  auto* const first = end + (4096 - reinterpret_cast<std::uintptr_t>(end) % 4096) % 4096;
  if (::sbrk(first - end + static_cast<std::intptr_t>(usual_bytes)) != end) return answer::unknown_here;
  const target all{first, usual_bytes};
  on.before(all);
  if (::sbrk(0) != first + usual_bytes) return answer::unknown_here;
  if (!set_break_inline(first) || !set_break_inline(first + usual_bytes)) return answer::unknown_here;
  return on.after(all);
}

/// A thread that discards its own memory again and again, while another thread does the same and asks the cache.
class discarding_thread {
 public:
  discarding_thread() : thread_([this](const std::stop_token& stop) { run(stop); }) {}

 private:
  void run(const std::stop_token& stop) const {
    while (!stop.stop_requested()) {
      std::memset(own_.data, 'C', own_.bytes);
      raw_call(SYS_madvise, own_.data, own_.bytes, MADV_DONTNEED);
    }
  }

  target own_ = mapping();
  std::jthread thread_;
};

/// Returns the worst result of many rounds, on a loaded machine of those that fit in ten seconds.
inline answer two_threads_discard(stage& on) {
  if constexpr (!has_raw_calls) return answer::unknown_here;
  constexpr int rounds = sanitized ? 200 : 2000;
  const auto at = mapping();
  auto worst = answer::unknown_here;
  on.before(at);
  const discarding_thread other;
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (int i = 0; i < rounds && worst != answer::stale && std::chrono::steady_clock::now() < until; ++i) {
    on.before(at);
    if (raw_call(SYS_madvise, at.data, at.bytes, MADV_DONTNEED) != 0) return answer::unknown_here;
    worst = std::max(worst, on.after(at));
  }
  return worst;
}

inline const std::vector<hazard>& of_mechanisms() {
  static const std::vector<hazard> list{
      {"madvise DONTNEED by process_madvise", all_monitors, true, on_anonymous(process_discards<false>)},
      {"madvise DONTNEED by process_madvise, inline", uffd | bpf, true, on_anonymous(process_discards<true>)},
      {"madvise DONTNEED, inline, by two threads at a time", uffd | bpf, true, two_threads_discard},
      {"munmap by a second libc (dlmopen)", all_monitors, true, on_anonymous(second_libc_unmaps)},
      {"sbrk back and forth by an inline system call", uffd | bpf, true, break_moves_inline},
  };
  return list;
}

}  // namespace pinfold::testing::hazards
