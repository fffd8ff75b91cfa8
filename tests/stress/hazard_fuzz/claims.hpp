// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The events that each monitor claims to see (docs/understand/monitors.md), and the combinations that exist at all. An
/// event that no monitor of a set claims is not generated for that set.
#pragma once

#include "mechanisms.hpp"
#include "vocabulary.hpp"

#include <pinfold/options.hpp>

#include <string>

namespace pinfold::testing::hazard_fuzz {

/// Returns the system call that causes an event.
inline long call_of(memory_event what) {
  switch (what) {
    case memory_event::unmap: return SYS_munmap;
    case memory_event::map_over: return SYS_mmap;
    case memory_event::move_away:
    case memory_event::move_away_keep:
    case memory_event::move_onto:
    case memory_event::shrink: return SYS_mremap;
    case memory_event::attach_over: return SYS_shmat;
    case memory_event::detach: return SYS_shmdt;
    case memory_event::remap_file: return SYS_remap_file_pages;
    case memory_event::punch: return SYS_fallocate;
    case memory_event::truncate: return SYS_ftruncate;
    case memory_event::protect: return SYS_mprotect;
    case memory_event::rename: return SYS_prctl;
    default: return SYS_madvise;
  }
}

/// Returns whether the event can happen to such memory.
inline bool can_happen(memory_event what, memory_kind to) {
  using enum memory_kind;
  const bool file = is_shared_with_others(to) && to != shared_anonymous && to != system_v;
  switch (what) {
    case memory_event::move_away_keep: return to == anonymous || to == transparent_huge;
    case memory_event::move_onto: return to != hugetlb && to != system_v;
    case memory_event::move_away:
    case memory_event::shrink: return to != system_v;
    case memory_event::dontneed: return to != locked;
    case memory_event::free_lazily: return to == anonymous || to == transparent_huge;
    case memory_event::remove:
      return to == shared_anonymous || to == shared_memfd || to == sealed_memfd || to == system_v;
    case memory_event::guard: return to == anonymous || to == transparent_huge;
    case memory_event::attach_over: return to != hugetlb && to != locked;
    case memory_event::detach: return to == system_v;
    case memory_event::remap_file: return to == shared_memfd;
    case memory_event::punch: return file && to != private_disk;
    case memory_event::truncate: return file;
    case memory_event::pageout: return to != hugetlb && to != locked;
    case memory_event::rename: return to == anonymous || to == transparent_huge || to == locked;
    default: return true;
  }
}

/// Returns whether the event replaces the old pages of the addresses.
inline bool destroys(memory_event what, memory_kind of) {
  switch (what) {
    case memory_event::dontneed:
    case memory_event::dontneed_locked: return !pages_are_the_files(of);
    case memory_event::remove: return of != memory_kind::sealed_memfd;  // refused
    case memory_event::punch: return of == memory_kind::shared_memfd;   // a private mapping's own pages stay
    case memory_event::free_lazily:
    case memory_event::protect:
    case memory_event::pageout:
    case memory_event::rename: return false;
    default: return true;
  }
}

/// Returns whether the memory goes by a call that does not name it, which no monitor of this process sees.
inline bool is_done_to_the_file(memory_event what) {
  return what == memory_event::punch || what == memory_event::truncate;
}

inline bool is_inline(mechanism via) {
  return via == mechanism::inline_syscall || via == mechanism::io_uring || via == mechanism::process_madvise_inline ||
         via == mechanism::vfork_inline;
}

/// Returns the monitors that claim to see the event when it is caused in this way.
inline monitor_choice claimed_by(memory_event what, mechanism via) {
  auto claimed = monitor_choice::bpf;
  if (is_done_to_the_file(what)) return claimed;
  if (!is_inline(via)) claimed = claimed | monitor_choice::hooks;
  const bool seen_by_userfaultfd = what != memory_event::guard && what != memory_event::attach_over &&
                                   what != memory_event::detach && what != memory_event::remap_file;
  return seen_by_userfaultfd ? claimed | monitor_choice::userfaultfd : claimed;
}

/// The monitors of a cache, as the fuzzer knows them.
struct watching {
  monitor_choice proven{};      ///< the monitors that proved themselves
  bool announces = false;       ///< the application announces each event before it
  bool single_process = false;  ///< set with a sanitizer: no child may share the memory
  bool strict = false;          ///< the caches ask the kernel before each look-up
  std::string names{};          ///< as `cache_and_device::monitors` names the proven ones; empty: any

  [[nodiscard]] bool keeps(memory_kind of) const {
    return announces || !is_shared_with_others(of) || contains_any(proven, monitor_choice::bpf);
  }
  /// Whether a registration is invalidated before another thread can get the unmapped address from the kernel.
  /// userfaultfd alone reports it a moment later, unless the cache is strict (docs/understand/monitors.md).
  [[nodiscard]] bool is_first_to_know() const {
    return announces || strict || contains_any(proven, monitor_choice::hooks) ||
           contains_any(proven, monitor_choice::bpf);
  }
  [[nodiscard]] bool sees(memory_event what, mechanism via) const {
    return announces || contains_any(proven, claimed_by(what, via));
  }
};

/// Returns whether the fuzzer causes the event under these monitors. It always causes harmless events.
inline bool may_be_generated(memory_event what, mechanism via, memory_kind to, const watching& by) {
  if (!can_happen(what, to) || !can_make(via, call_of(what))) return false;
  if (what == memory_event::rename && via != mechanism::libc) return false;
  const bool in_vfork_child = via == mechanism::vfork_libc || via == mechanism::vfork_inline;
  if (in_vfork_child && by.single_process) return false;
  return by.sees(what, via) || !by.keeps(to) || !destroys(what, to);
}

}  // namespace pinfold::testing::hazard_fuzz
