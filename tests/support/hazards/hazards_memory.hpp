// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// System calls on anonymous memory.
#pragma once

#include "support/hazards/hazards.hpp"
#include "support/host/raw_calls.hpp"

#include <csignal>
#include <sched.h>

namespace pinfold::testing::hazards {

inline constexpr std::size_t usual_bytes = 65536;
inline constexpr auto hooks = monitor_choice::hooks, uffd = monitor_choice::userfaultfd, bpf = monitor_choice::bpf;
inline constexpr auto all_monitors = hooks | uffd | bpf;

/// Maps the memory of one event. It is never unmapped: the process ends with the event.
inline target mapping(int flags = attacks::private_memory, int file = -1, std::size_t bytes = usual_bytes) {
  void* const at = ::mmap(nullptr, bytes, attacks::readable_writable, flags, file, 0);
  if (at == MAP_FAILED) return {nullptr, 0};
  return {static_cast<std::byte*>(at), bytes};
}

/// Runs the stage's `before`, the event, and `after`. Maps missing memory again in between.
template <class F>
answer happens_to(stage& on, const target& at, F&& event) {
  if (at.data == nullptr) return answer::unknown_here;
  on.before(at);
  if (!event(at)) return answer::unknown_here;
  mend(at);
  return on.after(at);
}

inline std::function<answer(stage&)> on_anonymous(attack_function event) {
  return [event = std::move(event)](stage& on) { return happens_to(on, mapping(), event); };
}

inline attack_function raw(long number, long third = 0, long fourth = 0, long fifth = 0) {
  return [=](const target& at) { return raw_call(number, at.data, at.bytes, third, fourth, fifth) == 0; };
}

inline bool raw_map_over(const target& at) {
  if constexpr (!has_raw_calls) return false;
  return raw_call(SYS_mmap, at.data, at.bytes, attacks::readable_writable, attacks::private_memory | MAP_FIXED, -1) ==
         static_cast<long>(reinterpret_cast<std::uintptr_t>(at.data));
}

inline constexpr int guard_install = 102, guard_remove = 103;  // Linux 6.13

inline bool raw_guards(const target& at) {
  const bool done = raw_call(SYS_madvise, at.data, at.bytes, guard_install) == 0;
  static_cast<void>(raw_call(SYS_madvise, at.data, at.bytes, guard_remove));
  return done;
}

inline bool ring_guards(const target& at) {
  io_uring ring{};
  if (::io_uring_queue_init(2, &ring, 0) != 0) return false;
  bool done = true;
  for (const int advice : {guard_install, guard_remove}) {
    io_uring_prep_madvise(::io_uring_get_sqe(&ring), at.data, static_cast<off_t>(at.bytes), advice);
    ::io_uring_submit_and_wait(&ring, 1);
    io_uring_cqe* answered = nullptr;
    done = done && ::io_uring_peek_cqe(&ring, &answered) == 0 && answered->res == 0;
    if (answered != nullptr) ::io_uring_cqe_seen(&ring, answered);
  }
  ::io_uring_queue_exit(&ring);
  return done;
}

template <bool Raw>
bool attach_over(const target& at) {
  const int segment = ::shmget(IPC_PRIVATE, at.bytes, 0600);
  if (segment < 0) return false;
  const auto number = static_cast<unsigned long>(segment);
  // the arguments of shmat are (id, address, flags), so raw_call's parameter names do not fit
  const bool done = Raw ? raw_call(SYS_shmat, reinterpret_cast<void*>(number), reinterpret_cast<unsigned long>(at.data),
                                   SHM_REMAP) == static_cast<long>(reinterpret_cast<std::uintptr_t>(at.data))
                        : ::shmat(segment, at.data, SHM_REMAP) == at.data;
  ::shmctl(segment, IPC_RMID, nullptr);
  return done;
}

inline int unmap_in_vfork_child(void* at) {
  auto* const of = static_cast<target*>(at);
  return static_cast<int>(::munmap(of->data, of->bytes));
}
inline int unmap_inline_in_vfork_child(void* at) {
  auto* const of = static_cast<target*>(at);
  return static_cast<int>(raw_call(SYS_munmap, of->data, of->bytes));
}

/// Runs `Body` in a child that shares this process's memory, as that of vfork(2).
template <int (*Body)(void*)>
bool in_vfork_child(const target& at) {
  alignas(16) static std::array<std::byte, 65536> stack;
  target copy = at;
  const pid_t child = ::clone(Body, stack.data() + stack.size(), CLONE_VM | CLONE_VFORK | SIGCHLD, &copy);
  int status = -1;
  return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

inline answer used_after_unmap(stage& on) {
  const auto at = mapping();
  on.before(at);
  ::munmap(at.data, at.bytes);
  return on.send(at);
}

inline answer moved_memory(stage& on) {
  const auto at = mapping();
  on.before(at);
  void* const to = attacks::elsewhere(at.bytes);
  if (::mremap(at.data, at.bytes, at.bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED)
    return answer::unknown_here;
  return on.after({static_cast<std::byte*>(to), at.bytes});
}

/// The target is the end of memory for which the kernel may use a huge page.
template <std::size_t Bytes>
answer in_huge_page(stage& on, int advice) {
  constexpr std::size_t huge = std::size_t{2} << 20U;
  const auto all = mapping(attacks::private_memory, -1, 3 * huge);
  if (all.data == nullptr || ::madvise(all.data, all.bytes, MADV_HUGEPAGE) != 0) return answer::unknown_here;
  auto* const first = all.data + (huge - reinterpret_cast<std::uintptr_t>(all.data) % huge);
  std::memset(first, 'A', huge);
  return happens_to(on, {first + huge - Bytes, Bytes}, attacks::advise(advice));
}

inline answer huge_pages(stage& on) {
  constexpr std::size_t huge = std::size_t{2} << 20U;
  const auto at = mapping(attacks::private_memory | MAP_HUGETLB, -1, huge);
  if (at.data == nullptr) return answer::unknown_here;
  on.before(at);
  ::munmap(at.data, at.bytes);
  if (::mmap(at.data, huge, attacks::readable_writable, attacks::private_memory | MAP_HUGETLB | MAP_FIXED_NOREPLACE, -1,
             0) == MAP_FAILED)
    return answer::unknown_here;
  return on.after(at);
}

inline answer never_written_before(stage& on) {
  const auto at = mapping();
  on.before_untouched(at);
  return on.after(at);
}

/// The child lives while the parent writes.
inline answer parent_writes_after_fork(stage& on) {
  const auto at = mapping();
  on.before(at);
  const pid_t child = ::fork();
  if (child == 0)
    for (;;) ::pause();
  const auto seen = on.after(at);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return seen;
}

/// Both processes have the ring; the pages registered in it are the parent's.
inline answer child_uses_the_cache(stage& on) {
  const auto at = mapping();
  on.before(at);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(static_cast<int>(on.after(at)));
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return answer::unknown_here;
  return static_cast<answer>(WEXITSTATUS(status));
}

inline const std::vector<hazard>& of_memory() {
  using namespace attacks;
  static const std::vector<hazard> list{
      {"munmap, and mmap at the address", all_monitors, true,
       on_anonymous([](const target& at) { return ::munmap(at.data, at.bytes) == 0; })},
      {"munmap, and nothing is mapped there", all_monitors, true, used_after_unmap},
      {"munmap through `syscall()`", all_monitors, true, on_anonymous(unmap)},
      {"munmap by an inline system call", uffd | bpf, true, on_anonymous(raw(SYS_munmap))},
      {"munmap by a child of vfork", all_monitors, true, on_anonymous(in_vfork_child<unmap_in_vfork_child>)},
      {"munmap inline by a child of vfork", uffd | bpf, true,
       on_anonymous(in_vfork_child<unmap_inline_in_vfork_child>)},
      {"munmap of huge pages (hugetlb)", all_monitors, true, huge_pages},
      {"mmap MAP_FIXED over it", all_monitors, true, on_anonymous(map_over)},
      {"mmap MAP_FIXED by an inline system call", uffd | bpf, true, on_anonymous(raw_map_over)},
      {"mremap away", all_monitors, true, on_anonymous(move_away(0))},
      {"mremap away, used at the new address", all_monitors, false, moved_memory},
      {"mremap away, DONTUNMAP", all_monitors, true, on_anonymous(move_away(MREMAP_DONTUNMAP))},
      {"mremap of something else onto it", all_monitors, true, on_anonymous(move_onto)},
      {"mremap to half its size and back", all_monitors, true, on_anonymous(shrink_and_grow)},
      {"madvise DONTNEED", all_monitors, true, on_anonymous(advise(MADV_DONTNEED))},
      {"madvise DONTNEED of a part of a huge page", all_monitors, true,
       [](stage& on) { return in_huge_page<usual_bytes>(on, MADV_DONTNEED); }},
      {"madvise DONTNEED by an inline system call", uffd | bpf, true, on_anonymous(raw(SYS_madvise, MADV_DONTNEED))},
      {"madvise DONTNEED from an io_uring", uffd | bpf, true, on_anonymous(advise_from_the_ring)},
      {"madvise DONTNEED_LOCKED", all_monitors, true, on_anonymous(advise(24))},
      {"madvise FREE", all_monitors, false, on_anonymous(advise(MADV_FREE))},
      {"madvise PAGEOUT", hooks, false, on_anonymous(advise(MADV_PAGEOUT))},
      {"madvise COLLAPSE", hooks, false, [](stage& on) { return in_huge_page<2 * 1048576>(on, 25); }},
      {"madvise GUARD_INSTALL", hooks | bpf, true, on_anonymous(guard_pages)},
      {"madvise GUARD_INSTALL by an inline system call", bpf, true, on_anonymous(raw_guards)},
      {"madvise GUARD_INSTALL from an io_uring", bpf, true, on_anonymous(ring_guards)},
      {"shmat SHM_REMAP over it", hooks | bpf, true, on_anonymous(hazards::attach_over<false>)},
      {"shmat SHM_REMAP by an inline system call", bpf, true, on_anonymous(hazards::attach_over<true>)},
      {"mprotect to NONE and back", hooks, false, on_anonymous(change_protection)},
      {"first written after it was registered", all_monitors, false, never_written_before},
      {"fork, and the parent writes", all_monitors, false, parent_writes_after_fork},
      {"fork, and the child discards", all_monitors, false, on_anonymous(child_discards)},
      {"fork, and the child uses the cache", all_monitors, false, child_uses_the_cache},
  };
  return list;
}

}  // namespace pinfold::testing::hazards
