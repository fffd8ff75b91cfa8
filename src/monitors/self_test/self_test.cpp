// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/self_test/self_test.hpp"

#include "invalidation/own_code.hpp"
#include "os/file.hpp"
#include "os/size_limit.hpp"

#include <array>
#include <cstring>
#include <fcntl.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace pinfold::monitors {

using invalidation::source;

registered_memory::registered_memory(const invalidation::monitor_set& watched_by, const range& memory) noexcept
    : watched_by_(watched_by),
      memory_(memory),
      noted_(invalidation::registered_filter::here().prepare(memory)),
      cursor_(0) {
  if (noted_) invalidation::registered_filter::here().add(memory_);
  watched_ = watched_by.all().empty() || watched_by.watch(memory_);
  static_cast<void>(watched_by_.drain());
  cursor_ = invalidation::event_log::here().generation().load(std::memory_order_seq_cst);
}

registered_memory::~registered_memory() {
  if (noted_) invalidation::registered_filter::here().remove(memory_);
}

sources registered_memory::seen_by() const noexcept {
  static_cast<void>(watched_by_.drain());
  sources seen = 0;
  auto at = cursor_;
  range gone;
  source from{};
  for (auto news = invalidation::event_log::here().read(at, gone, from);
       news != invalidation::read_status::nothing && news != invalidation::read_status::unfinished;
       news = invalidation::event_log::here().read(at, gone, from))
    if (news == invalidation::read_status::one && gone.overlaps(memory_)) seen |= only(from);
  return seen;
}

namespace {

constexpr std::size_t bytes = 65536;
constexpr int usable = PROT_READ | PROT_WRITE;
constexpr int own = MAP_PRIVATE | MAP_ANONYMOUS;

constexpr sources hooks = only(source::hooks), userfaultfd = only(source::userfaultfd), bpf = only(source::bpf);

range as_range(const void* at, std::size_t size = bytes) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(at);
  return {begin, begin + size};
}

/// Memory of this process that was written to.
class pages {
 public:
  explicit pages(int file = -1) : at_(::mmap(nullptr, bytes, usable, file < 0 ? own : MAP_SHARED, file, 0)) {
    if (there()) std::memset(at_, 1, bytes);
  }
  pages(const pages&) = delete;
  pages& operator=(const pages&) = delete;
  ~pages() {
    if (there()) ::munmap(at_, left_);
  }
  [[nodiscard]] bool there() const noexcept { return at_ != MAP_FAILED; }
  [[nodiscard]] void* at() const noexcept { return at_; }
  void forget() noexcept { at_ = MAP_FAILED; }
  /// From now on owns only the first `left` bytes: another thread may have mapped memory behind them.
  void shrink_to(std::size_t left) noexcept { left_ = left; }

 private:
  void* at_;
  std::size_t left_ = bytes;
};

// Returns a file in memory that no other process has; nothing if it cannot be made.
os::file memory_file() noexcept {
  os::file made(::memfd_create("pinfold-probe", MFD_CLOEXEC));
  const bool sized = made && os::within_size_limit([&] { return ::ftruncate(made.number(), bytes); }) == 0;
  return sized ? std::move(made) : os::file();
}

// Runs `event(pages&)` on watched memory. The event returns whether it could happen.
template <class F>
outcome on(pages& memory, const invalidation::monitor_set& watched_by, sources& seen, F&& event) noexcept {
  if (!memory.there()) return outcome::unknown_here;
  const registered_memory watched(watched_by, as_range(memory.at()));
  const bool done = event(memory);
  seen = watched.seen_by();
  return done ? outcome::gone : outcome::unknown_here;
}

template <class F>
outcome on_own(const invalidation::monitor_set& watched_by, sources& seen, F&& event) noexcept {
  pages memory;
  return on(memory, watched_by, seen, event);
}

template <class F>
outcome on_file(const invalidation::monitor_set& watched_by, sources& seen, F&& event) noexcept {
  const os::file file = memory_file();
  if (file.number() < 0) return outcome::unknown_here;
  pages memory(file.number());
  return on(memory, watched_by, seen, [&](pages& here) { return event(here, file.number()); });
}

#if defined(__x86_64__)
// Calls the kernel as a program without libc does, or one that inlines its system calls.
long inline_munmap(void* at) noexcept {
  return invalidation::own_system_call(SYS_munmap, reinterpret_cast<unsigned long>(at), bytes);
}
#endif

outcome unmap(const invalidation::monitor_set& by, sources& seen) noexcept {
  return on_own(by, seen, [](pages& memory) {
    const bool done = ::munmap(memory.at(), bytes) == 0;
    memory.forget();
    return done;
  });
}

outcome unmap_without_libc(const invalidation::monitor_set& by, sources& seen) noexcept {
#if defined(__x86_64__)
  return on_own(by, seen, [](pages& memory) {
    const bool done = inline_munmap(memory.at()) == 0;
    memory.forget();
    return done;
  });
#else
  static_cast<void>(by), static_cast<void>(seen);
  return outcome::unknown_here;
#endif
}

outcome unmap_by_number(const invalidation::monitor_set& by, sources& seen) noexcept {
  return on_own(by, seen, [](pages& memory) {
    const bool done = ::syscall(SYS_munmap, memory.at(), bytes) == 0;
    memory.forget();
    return done;
  });
}

outcome map_over(const invalidation::monitor_set& by, sources& seen) noexcept {
  return on_own(by, seen,
                [](pages& memory) { return ::mmap(memory.at(), bytes, usable, own | MAP_FIXED, -1, 0) != MAP_FAILED; });
}

outcome move_away(const invalidation::monitor_set& by, sources& seen) noexcept {
  return on_own(by, seen, [](pages& memory) {
    const pages to;
    if (!to.there()) return false;
    const bool done = ::mremap(memory.at(), bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to.at()) != MAP_FAILED;
    memory.forget();  // the memory is at the other place now
    return done;
  });
}

outcome move_onto(const invalidation::monitor_set& by, sources& seen) noexcept {
  return on_own(by, seen, [](pages& memory) {
    pages from;
    if (!from.there()) return false;
    const bool done = ::mremap(from.at(), bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, memory.at()) != MAP_FAILED;
    if (done) from.forget();
    return done;
  });
}

outcome shrink(const invalidation::monitor_set& by, sources& seen) noexcept {
  return on_own(by, seen, [](pages& memory) {
    const bool done = ::mremap(memory.at(), bytes, bytes / 2, 0) != MAP_FAILED;
    if (done) memory.shrink_to(bytes / 2);
    return done;
  });
}

template <int Advice>
outcome advise(const invalidation::monitor_set& by, sources& seen) noexcept {
  return on_own(by, seen, [](pages& memory) { return ::madvise(memory.at(), bytes, Advice) == 0; });
}

outcome remove_pages(const invalidation::monitor_set& by, sources& seen) noexcept {
  return on_file(by, seen, [](pages& memory, int) { return ::madvise(memory.at(), bytes, MADV_REMOVE) == 0; });
}

outcome other_pages(const invalidation::monitor_set& by, sources& seen) noexcept {
  return on_file(by, seen, [](pages& memory, int) {
    return ::syscall(SYS_remap_file_pages, memory.at(), bytes / 2, 0, 8, 0) == 0;
  });
}

outcome attach_over(const invalidation::monitor_set& by, sources& seen) noexcept {
  return on_own(by, seen, [](pages& memory) {
    const int segment = ::shmget(IPC_PRIVATE, bytes, 0600);
    if (segment < 0) return false;
    const bool done = ::shmat(segment, memory.at(), SHM_REMAP) != reinterpret_cast<void*>(-1);
    ::shmctl(segment, IPC_RMID, nullptr);
    return done;
  });
}

outcome detach(const invalidation::monitor_set& by, sources& seen) noexcept {
  const int segment = ::shmget(IPC_PRIVATE, bytes, 0600);
  if (segment < 0) return outcome::unknown_here;
  void* const at = ::shmat(segment, nullptr, 0);
  ::shmctl(segment, IPC_RMID, nullptr);
  if (at == reinterpret_cast<void*>(-1)) return outcome::unknown_here;
  const registered_memory watched(by, as_range(at));
  const bool done = ::shmdt(at) == 0;
  seen = watched.seen_by();
  return done ? outcome::gone : outcome::unknown_here;
}

outcome punch(const invalidation::monitor_set& by, sources& seen) noexcept {
  return on_file(by, seen, [](pages&, int file) {
    return ::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, bytes) == 0;
  });
}

outcome truncate(const invalidation::monitor_set& by, sources& seen) noexcept {
  return on_file(by, seen, [](pages&, int file) { return ::ftruncate(file, 0) == 0 && ::ftruncate(file, bytes) == 0; });
}

constexpr int guard_install = 102;  // Linux 6.13

constexpr std::array<probe, 16> calls{{
    {"munmap", hooks | userfaultfd | bpf, unmap},
    {"munmap through syscall()", hooks | userfaultfd | bpf, unmap_by_number},
    {"munmap by an inline system call", userfaultfd | bpf, unmap_without_libc},
    {"mmap MAP_FIXED over it", hooks | userfaultfd | bpf, map_over},
    {"mremap away", hooks | userfaultfd | bpf, move_away},
    {"mremap of something else onto it", hooks | userfaultfd | bpf, move_onto},
    {"mremap to a smaller size", hooks | userfaultfd | bpf, shrink},
    {"madvise DONTNEED", hooks | userfaultfd | bpf, advise<MADV_DONTNEED>},
    {"madvise FREE", hooks | userfaultfd | bpf, advise<MADV_FREE>},
    {"madvise GUARD_INSTALL", hooks | bpf, advise<guard_install>},
    {"madvise REMOVE", hooks | userfaultfd | bpf, remove_pages},
    {"remap_file_pages", hooks | bpf, other_pages},
    {"shmat SHM_REMAP over it", hooks | bpf, attach_over},
    {"shmdt", hooks | bpf, detach},
    {"fallocate PUNCH_HOLE", bpf, punch},
    {"ftruncate", bpf, truncate},
}};

}  // namespace

std::span<const probe> system_calls() noexcept { return calls; }

}  // namespace pinfold::monitors
