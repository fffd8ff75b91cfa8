// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Causes an event of a slot's memory, and records which pages it changed and how.
#pragma once

#include "claims.hpp"
#include "helper_process.hpp"
#include "slot.hpp"

#include <optional>

namespace pinfold::testing::hazard_fuzz {

/// A chosen event of a part of a slot, and the way to cause it.
struct chosen_event {
  memory_event what{};
  mechanism via{};
  part where{};             ///< whole units of the slot's memory
  std::size_t odd_bytes{};  ///< the call's length is less than whole pages by this much
};

/// Memory beside the slots, which a mapping is moved to or from.
class other_memory {
 public:
  other_memory(std::size_t bytes, int flags)
      : bytes_(bytes), at_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0)) {}
  other_memory(const other_memory&) = delete;
  other_memory& operator=(const other_memory&) = delete;
  ~other_memory() {
    if (at_ != MAP_FAILED) ::munmap(at_, bytes_);
  }

  [[nodiscard]] bool is_there() const { return at_ != MAP_FAILED; }
  [[nodiscard]] long address() const { return static_cast<long>(reinterpret_cast<std::uintptr_t>(at_)); }
  void is_gone() { at_ = MAP_FAILED; }

 private:
  std::size_t bytes_;
  void* at_;
};

/// Causes events of one slot, which the calling thread owns.
class event_maker {
 public:
  event_maker(slot& of, helper_process& helper) : of_(of), helper_(helper) {}

  /// Returns whether the event happened. Afterwards the slot knows which pages went and which must be mapped again.
  bool cause(const chosen_event& event) {
    via_ = event.via;
    where_ = event.where;
    at_ = of_.base() + where_.begin;
    call_bytes_ = where_.size() - event.odd_bytes;
    of_.announce(reach(event.what));
    const bool done = happens(event.what);
    if (done && destroys(event.what, of_.kind())) of_.destroyed(reach(event.what));
    return done;
  }

 private:
  static constexpr int guard_install = 102, guard_remove = 103, dontneed_lock = 24;

  /// Returns the part that the event destroys: more than its own part where the call has no end of its own.
  [[nodiscard]] part reach(memory_event what) const {
    if (what == memory_event::detach) return {0, of_.bytes()};
    if (what == memory_event::truncate) return {where_.begin, of_.bytes()};
    if (what == memory_event::shrink) return {where_.begin + kept_of_shrunk(), of_.bytes()};
    return where_;
  }
  /// Returns how much of the memory from the begin of the part on `shrink` keeps: half, in whole units.
  [[nodiscard]] std::size_t kept_of_shrunk() const {
    return (of_.bytes() - where_.begin) / 2 / of_.unit() * of_.unit();
  }

  [[nodiscard]] bool call(long number, long c = 0, long d = 0, long e = 0) const {
    return make_call(via_, {number, at_, call_bytes_, c, d, e});
  }
  [[nodiscard]] bool advise(int advice) const { return call(SYS_madvise, advice); }

  bool happens(memory_event what) {
    switch (what) {
      case memory_event::unmap: return leaves_hole(call(SYS_munmap));
      case memory_event::map_over: return map_over();
      case memory_event::move_away: return move_away(0);
      case memory_event::move_away_keep: return move_away(MREMAP_DONTUNMAP);
      case memory_event::move_onto: return move_onto();
      case memory_event::shrink: return shrink();
      case memory_event::dontneed: return advise(MADV_DONTNEED);
      case memory_event::dontneed_locked: return advise(dontneed_lock);
      case memory_event::free_lazily: return advise(MADV_FREE);
      case memory_event::remove: return advise(MADV_REMOVE);
      case memory_event::pageout: return advise(MADV_PAGEOUT);
      case memory_event::guard: return advise(guard_install) && advise(guard_remove);
      case memory_event::attach_over: return attach_over();
      case memory_event::detach: return detach();
      case memory_event::remap_file: return remap_file();
      case memory_event::punch: return change_file(SYS_fallocate);
      case memory_event::truncate: return change_file(SYS_ftruncate);
      case memory_event::protect: return protect();
      case memory_event::rename: return rename();
    }
    return false;
  }

  bool leaves_hole(bool done) {
    if (done) of_.has_hole(where_);
    return done;
  }
  /// Marks the slot to be mapped anew, even after a failure: a call that failed half-way may have unmapped already.
  bool leaves_other_memory(bool done) {
    of_.has_other_memory();
    return done;
  }

  bool map_over() {
    const bool file = is_file(of_.kind()) || of_.kind() == memory_kind::system_v;
    const int flags = (file ? MAP_PRIVATE | MAP_ANONYMOUS : of_.map_flags()) | MAP_FIXED;
    const bool done = call(SYS_mmap, PROT_READ | PROT_WRITE, flags, -1);
    return file || !done ? leaves_other_memory(done) : done;
  }

  bool move_away(int flags) {
    other_memory to(where_.size(), MAP_PRIVATE | MAP_ANONYMOUS);
    if (!to.is_there()) return false;
    const auto bytes = static_cast<long>(where_.size());
    call_bytes_ = where_.size();
    const bool done = call(SYS_mremap, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | flags, to.address());
    if (!done) return leaves_other_memory(done);  // of several mappings, some may have moved
    return flags == 0 ? leaves_hole(done) : done;
  }

  bool move_onto() {
    other_memory from(where_.size(), MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE);
    if (!from.is_there()) return false;
    const auto bytes = static_cast<long>(where_.size()), onto = static_cast<long>(at_);
    const kernel_call move{
        SYS_mremap, static_cast<std::uintptr_t>(from.address()), where_.size(), bytes, MREMAP_MAYMOVE | MREMAP_FIXED,
        onto};
    const bool done = make_call(via_, move);
    if (done) from.is_gone();
    const bool same_kind = of_.kind() == memory_kind::anonymous || of_.kind() == memory_kind::transparent_huge;
    return done && same_kind ? done : leaves_other_memory(done);
  }

  bool shrink() {
    if (kept_of_shrunk() == 0) return false;
    call_bytes_ = of_.bytes() - where_.begin;
    const bool done = call(SYS_mremap, static_cast<long>(kept_of_shrunk()), 0);
    if (done) of_.has_hole(reach(memory_event::shrink));
    return done;
  }

  bool attach_over() {
    const int segment = ::shmget(IPC_PRIVATE, where_.size(), 0600);
    if (segment < 0) return false;
    const bool done = make_call(via_, {SYS_shmat, static_cast<std::uintptr_t>(segment), at_, SHM_REMAP});
    ::shmctl(segment, IPC_RMID, nullptr);
    return leaves_other_memory(done);
  }

  bool detach() {
    const bool done = make_call(via_, {SYS_shmdt, of_.base()});
    return done ? leaves_other_memory(done) : done;
  }

  bool remap_file() {
    const auto first = static_cast<long>((of_.bytes() - where_.end) / page_bytes);
    call_bytes_ = where_.size();
    return leaves_other_memory(call(SYS_remap_file_pages, 0, first, 0));
  }

  bool change_file(long number) {
    const auto begin = static_cast<long>(where_.begin), bytes = static_cast<long>(where_.size());
    const auto file = static_cast<std::uintptr_t>(of_.file());
    if (number == SYS_fallocate)
      return to_file({number, file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, begin, bytes});
    return to_file({number, file, where_.begin}) && to_file({number, file, of_.bytes()});
  }
  bool to_file(const kernel_call& what) {
    return via_ == mechanism::other_process ? helper_.call(what) : make_call(via_, what);
  }

  bool protect() {
    const bool done = call(SYS_mprotect, PROT_NONE);
    return call(SYS_mprotect, PROT_READ | PROT_WRITE) && done;
  }

  bool rename() {
    constexpr unsigned long set_vma = 0x53564d41, anon_name = 0;  // PR_SET_VMA, PR_SET_VMA_ANON_NAME
    return ::prctl(static_cast<int>(set_vma), anon_name, at_, where_.size(), "anon_hugepage.so") == 0;
  }

  slot& of_;
  helper_process& helper_;
  mechanism via_{};
  part where_{};
  std::uintptr_t at_ = 0;
  std::size_t call_bytes_ = 0;
};

}  // namespace pinfold::testing::hazard_fuzz
