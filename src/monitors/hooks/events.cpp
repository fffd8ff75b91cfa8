// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/hooks/events.hpp"

#include "invalidation/background_open.hpp"
#include "invalidation/early_unregister.hpp"
#include "invalidation/new_code.hpp"
#include "monitors/hooks/guard.hpp"
#include "monitors/hooks/ranges.hpp"
#include "monitors/hooks/segments.hpp"
#include "monitors/hooks/system_call.hpp"
#include "os/check.hpp"

#include <algorithm>
#include <atomic>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <utility>

namespace pinfold::monitors::events {

namespace {

using address = std::uintptr_t;

// The data that every call reads, the most common in one cache line: the kernel leaves little in the CPU's caches.
// Constant-initialised and without a destructor, because a call may come at any time.
struct alignas(64) wiring {
  std::atomic<const invalidation::registered_filter*> memory{nullptr};
  std::atomic<invalidation::event_log*> event_log{nullptr};
  std::array<std::array<std::atomic<address>, functions>, layers> originals{};
  std::atomic<const address*> heap_end{nullptr};
  std::atomic<code_lock*> code{nullptr};
};
wiring wired;

struct loaded_code {
  std::atomic<std::uint64_t> times{0};
  std::atomic<std::uint64_t> libc_device{0};
  std::atomic<std::uint64_t> libc_inode{0};
};
loaded_code loaded;
segments attachments;

// Posts the memory; if a hook was removed or covered, also everything: other events may then have been missed.
[[gnu::noinline]] void post(const range& memory) noexcept {
  auto* const event_log = wired.event_log.load(std::memory_order_relaxed);
  PINFOLD_ASSERT(event_log != nullptr, "memory is watched for an event log");
  event_log->post(memory, invalidation::source::hooks);
  if (!guard::intact()) event_log->post_everything(invalidation::source::hooks);
}

[[gnu::always_inline]] inline bool is_watched(const range& memory) noexcept {
  if (memory.empty()) return false;
  const auto* watched = wired.memory.load(std::memory_order_acquire);
  return watched != nullptr && watched->touches(memory);
}

// Leaves userfaultfd before it posts: a thread that registers the memory in between is either watched again or finds
// the event.
[[gnu::noinline]] void leave_and_post(const range& memory) noexcept {
  PINFOLD_ASSERT(memory.begin < memory.end && memory.begin % ranges::page == 0, "whole pages leave the watch");
  invalidation::early_unregister(memory);
  post(memory);
}

// One call that takes memory away. Constructed before the first check of what is registered. Posts the memory before
// the call, and again after it if a thread of the library may have registered it in between (background_open.hpp).
class taking {
 public:
  taking() noexcept = default;
  taking(const taking&) = delete;
  taking& operator=(const taking&) = delete;
  ~taking() {
    if (before_.any_since()) [[unlikely]]
      post_again();
  }

  [[gnu::always_inline]] void takes(const range& memory) noexcept {
    if (memory.empty()) return;
    note(memory);
    if (is_watched(memory)) post(memory);
  }

  // Only munmap takes the whole posted range, or nothing at all. From an unaligned address it takes nothing.
  [[gnu::always_inline]] void unmaps(address at, std::size_t bytes) noexcept {
    const auto memory = ranges::pages(at, bytes);
    if (at != memory.begin) return takes(memory);
    note(memory);
    if (is_watched(memory)) leave_and_post(memory);
  }

 private:
  [[gnu::always_inline]] void note(const range& memory) noexcept {
    if (first_.empty()) {
      first_ = memory;
    } else {
      rest_ = rest_.empty() ? memory : range{std::min(rest_.begin, memory.begin), std::max(rest_.end, memory.end)};
    }
  }
  [[gnu::noinline]] void post_again() const noexcept {
    if (is_watched(first_)) post(first_);
    if (is_watched(rest_)) post(rest_);
  }

  const invalidation::background_open::look before_;
  range first_{};
  range rest_{};
};

bool active() noexcept { return wired.memory.load(std::memory_order_relaxed) != nullptr; }

// Called after the call, and before its caller can run the new code.
[[gnu::noinline]] void new_code(std::atomic<std::uint64_t>& counted) noexcept {
  counted.fetch_add(1, std::memory_order_release);
  auto* const event_log = wired.event_log.load(std::memory_order_relaxed);
  if (invalidation::code_events.relied_on.load(std::memory_order_seq_cst) != 0 && event_log != nullptr && active())
    event_log->post_everything(invalidation::source::hooks);
}

[[gnu::always_inline]] inline void mapped(int protection) noexcept {
  if ((protection & PROT_EXEC) != 0) new_code(invalidation::code_events.mapped);
}

[[gnu::always_inline]] inline void after_protection_change(int protection) noexcept {
  if ((protection & PROT_EXEC) != 0) new_code(invalidation::code_events.changed);
}

template <class F>
F* original(std::size_t layer, function which) noexcept {
  const auto code = wired.originals[layer][static_cast<std::size_t>(which)].load(std::memory_order_relaxed);
  PINFOLD_ASSERT(code != 0, "the original is set before a call can reach its replacement");
  return reinterpret_cast<F*>(code);
}

void before_mremap(taking& now, address at, std::size_t old_bytes, std::size_t bytes, int flags, address to) noexcept {
  now.takes(ranges::mremap_from(at, old_bytes, bytes, flags));
  now.takes(ranges::mremap_onto(to, bytes, flags));
  attachments.forget();
}

// Posts the memory above the new end, from the lower of the ends that libc and the kernel know.
void before_sbrk(taking& now, std::intptr_t increment) noexcept {
  if (increment >= 0 || !active()) return;
  const auto* const known = wired.heap_end.load(std::memory_order_relaxed);
  const auto present = static_cast<address>(system_call(SYS_brk));
  const auto from = known != nullptr && *known != 0 ? std::min(*known, present) : present;
  const auto less = std::min(from, address{0} - static_cast<address>(increment));
  now.takes({from - less, ranges::up(present)});
}

// Posts everything when another library makes code with our jumps writable, because it may remove hooks at any time.
[[gnu::noinline]] void before_code_changes() noexcept {
  if (active()) wired.event_log.load(std::memory_order_relaxed)->post_everything(invalidation::source::hooks);
}

code_lock* lock_for(address at, std::size_t bytes) noexcept {
  return guard::may_touch(ranges::pages(at, bytes)) ? wired.code.load(std::memory_order_relaxed) : nullptr;
}

[[gnu::always_inline]] inline void before_mprotect(address at, std::size_t bytes, int protection) noexcept {
  if (guard::protect(ranges::pages(at, bytes), (protection & PROT_WRITE) != 0)) before_code_changes();
}

[[gnu::always_inline]] inline void after_mprotect(address at, std::size_t bytes, int protection, bool done) noexcept {
  if (!done && (protection & PROT_WRITE) != 0) guard::protect(ranges::pages(at, bytes), false);
  after_protection_change(protection);
}

[[gnu::noinline]] void code_is_mapped(int file) noexcept {
  if (!active()) return;
  loaded.times.fetch_add(1, std::memory_order_seq_cst);
  struct stat found{};
  if (system_call(SYS_fstat, static_cast<unsigned long>(file), reinterpret_cast<address>(&found)) != 0) return;
  if (found.st_ino == loaded.libc_inode.load(std::memory_order_seq_cst) &&
      found.st_dev == loaded.libc_device.load(std::memory_order_seq_cst))
    wired.event_log.load(std::memory_order_relaxed)->post_everything(invalidation::source::hooks);
}

[[gnu::always_inline]] inline void before_mmap(taking& now, address at, std::size_t bytes, int protection, int flags,
                                               int file) noexcept {
  now.takes(ranges::mmap(at, bytes, flags));
  if ((protection & PROT_EXEC) != 0 && (flags & MAP_ANONYMOUS) == 0) code_is_mapped(file);
}

void before_brk(taking& now, address end) noexcept {
  if (end != 0 && active()) now.takes(ranges::brk(end, static_cast<address>(system_call(SYS_brk))));
}

std::size_t size_of_segment(int id) noexcept {
  shmid_ds found{};
  const auto into = reinterpret_cast<address>(&found);
  return system_call(SYS_shmctl, static_cast<unsigned long>(id), IPC_STAT, into) == 0 ? found.shm_segsz : SIZE_MAX;
}

void before_shmat(taking& now, int id, address at, int flags) noexcept {
  if (at != 0 && (flags & SHM_REMAP) != 0 && active()) now.takes(ranges::pages_of_any_size(at, size_of_segment(id)));
}

// The vector is the caller's, and may not be readable at all, so the kernel copies it.
void before_process_madvise(taking& now, const iovec* vector, std::size_t count, int advice) noexcept {
  if (ranges::harmless(advice) || !active()) return;
  const auto self = static_cast<unsigned long>(system_call(SYS_getpid));
  std::array<iovec, 16> copy{};
  for (std::size_t done = 0; done < count && done < UIO_MAXIOV; done += copy.size()) {
    const auto bytes = std::min(copy.size(), count - done) * sizeof(iovec);
    const iovec here{copy.data(), bytes};
    const iovec there{const_cast<iovec*>(vector + done), bytes};
    const auto copied = system_call(SYS_process_vm_readv, self, reinterpret_cast<address>(&here), 1,
                                    reinterpret_cast<address>(&there), 1);
    if (copied < 0) return now.takes({0, UINTPTR_MAX});
    for (std::size_t i = 0; i < static_cast<std::size_t>(copied) / sizeof(iovec); ++i)
      now.takes(ranges::pages(reinterpret_cast<address>(copy[i].iov_base), copy[i].iov_len));
  }
}

template <std::size_t Layer, function Which>
int on_munmap(address at, std::size_t bytes) {
  taking now;
  now.unmaps(at, bytes);
  return original<int(address, std::size_t)>(Layer, Which)(at, bytes);
}

template <std::size_t Layer, function Which>
address on_mmap(address at, std::size_t bytes, int protection, int flags, int file, long offset) {
  taking now;
  before_mmap(now, at, bytes, protection, flags, file);
  using mmap_function = address(address, std::size_t, int, int, int, long);
  const address done = original<mmap_function>(Layer, Which)(at, bytes, protection, flags, file, offset);
  mapped(protection);
  return done;
}

// Variadic in libc, which reads the last argument only if the flags require it.
template <std::size_t Layer>
address on_mremap(address at, std::size_t old_bytes, std::size_t bytes, int flags, address to) {
  taking now;
  before_mremap(now, at, old_bytes, bytes, flags, to);
  using mremap_function = address(address, std::size_t, std::size_t, int, address);
  return original<mremap_function>(Layer, function::mremap)(at, old_bytes, bytes, flags, to);
}

template <std::size_t Layer>
int on_madvise(address at, std::size_t bytes, int advice) {
  taking now;
  now.takes(ranges::madvise(at, bytes, advice));
  return original<int(address, std::size_t, int)>(Layer, function::madvise)(at, bytes, advice);
}

template <std::size_t Layer>
int on_posix_madvise(address at, std::size_t bytes, int advice) {
  taking now;
  now.takes(ranges::posix_madvise(at, bytes, advice));
  return original<int(address, std::size_t, int)>(Layer, function::posix_madvise)(at, bytes, advice);
}

// The descriptor does not identify the process: advice on another process's memory is treated as advice on our own.
template <std::size_t Layer>
long on_process_madvise(int process, const iovec* vector, std::size_t count, int advice, unsigned flags) {
  taking now;
  before_process_madvise(now, vector, count, advice);
  using process_madvise_function = long(int, const iovec*, std::size_t, int, unsigned);
  return original<process_madvise_function>(Layer, function::process_madvise)(process, vector, count, advice, flags);
}

template <std::size_t Layer>
int on_brk(address end) {
  taking now;
  before_brk(now, end);
  return original<int(address)>(Layer, function::brk)(end);
}

template <std::size_t Layer>
address on_sbrk(std::intptr_t increment) {
  taking now;
  before_sbrk(now, increment);
  return original<address(std::intptr_t)>(Layer, function::sbrk)(increment);
}

template <std::size_t Layer, function Which>
int on_mprotect(address at, std::size_t bytes, int protection) {
  const code_lock::shared no_change(lock_for(at, bytes));
  before_mprotect(at, bytes, protection);
  const int answer = original<int(address, std::size_t, int)>(Layer, Which)(at, bytes, protection);
  after_mprotect(at, bytes, protection, answer == 0);
  return answer;
}

template <std::size_t Layer>
int on_pkey_mprotect(address at, std::size_t bytes, int protection, int key) {
  const code_lock::shared no_change(lock_for(at, bytes));
  before_mprotect(at, bytes, protection);
  using pkey_mprotect_function = int(address, std::size_t, int, int);
  const int answer = original<pkey_mprotect_function>(Layer, function::pkey_mprotect)(at, bytes, protection, key);
  after_mprotect(at, bytes, protection, answer == 0);
  return answer;
}

template <std::size_t Layer>
address on_shmat(int id, address at, int flags) {
  taking now;
  before_shmat(now, id, at, flags);
  const address attached = original<address(int, address, int)>(Layer, function::shmat)(id, at, flags);
  if (attached != UINTPTR_MAX && active()) attachments.attached(attached, size_of_segment(id));
  if ((flags & SHM_EXEC) != 0) mapped(PROT_EXEC);
  return attached;
}

template <std::size_t Layer>
int on_shmdt(address at) {
  taking now;
  now.takes(attachments.detached(at));
  return original<int(address)>(Layer, function::shmdt)(at);
}

template <std::size_t Layer>
int on_remap_file_pages(address at, std::size_t bytes, int protection, std::size_t offset, int flags) {
  taking now;
  now.takes(ranges::pages(at, bytes));
  using remap_function = int(address, std::size_t, int, std::size_t, int);
  return original<remap_function>(Layer, function::remap_file_pages)(at, bytes, protection, offset, flags);
}

void before_syscall(taking& now, long number, address a, address b, address c, address d, address e) noexcept {
  switch (number) {
    case SYS_munmap: return now.unmaps(a, b);
    case SYS_remap_file_pages: return now.takes(ranges::pages(a, b));
    case SYS_mmap: return before_mmap(now, a, b, static_cast<int>(c), static_cast<int>(d), static_cast<int>(e));
    case SYS_mremap: return before_mremap(now, a, b, c, static_cast<int>(d), e);
    case SYS_madvise: return now.takes(ranges::madvise(a, b, static_cast<int>(c)));
    case SYS_process_madvise:
      return before_process_madvise(now, reinterpret_cast<const iovec*>(b), c, static_cast<int>(d));
    case SYS_brk: return before_brk(now, a);
    case SYS_shmat: attachments.forget(); return before_shmat(now, static_cast<int>(a), b, static_cast<int>(c));
    case SYS_shmdt: return now.takes(attachments.detached(a));
    case SYS_mprotect:
    case SYS_pkey_mprotect: return before_mprotect(a, b, static_cast<int>(c));
    default: return;
  }
}

// Counts new rings: later operations of io_uring are not calls of any thread.
void after_syscall(long number, address a, address b, address c, bool done) noexcept {
  constexpr long io_uring_setup = 425, io_uring_enter = 426;  // the same on all architectures
  switch (number) {
    case SYS_mmap: return mapped(static_cast<int>(c));
    case SYS_mprotect:
    case SYS_pkey_mprotect: return after_mprotect(a, b, static_cast<int>(c), done);
    case SYS_shmat: return (static_cast<int>(c) & SHM_EXEC) != 0 ? mapped(PROT_EXEC) : void();
    case io_uring_setup:
    case io_uring_enter: return new_code(invalidation::code_events.rings);
    default: return;
  }
}

// Variadic in libc; the sixth argument of the call is on the stack. If the caller passed none, another value is there.
template <std::size_t Layer>
long on_syscall(long number, address a, address b, address c, address d, address e, address f) {
  const bool protects = number == SYS_mprotect || number == SYS_pkey_mprotect;
  const code_lock::shared no_change(protects ? lock_for(a, b) : nullptr);
  taking now;
  before_syscall(now, number, a, b, c, d, e);
  using syscall_function = long(long, address, address, address, address, address, address);
  const long answer = original<syscall_function>(Layer, function::syscall)(number, a, b, c, d, e, f);
  after_syscall(number, a, b, c, answer == 0);
  return answer;
}

template <class F>
address at(F* replacement) noexcept {
  return reinterpret_cast<address>(replacement);
}

template <std::size_t Layer>
constexpr auto replacements_of = [] {
  return std::array<address, functions>{at(on_munmap<Layer, function::munmap>),
                                        at(on_mmap<Layer, function::mmap>),
                                        at(on_mremap<Layer>),
                                        at(on_madvise<Layer>),
                                        at(on_posix_madvise<Layer>),
                                        at(on_process_madvise<Layer>),
                                        at(on_brk<Layer>),
                                        at(on_sbrk<Layer>),
                                        at(on_shmat<Layer>),
                                        at(on_shmdt<Layer>),
                                        at(on_remap_file_pages<Layer>),
                                        at(on_munmap<Layer, function::linker_munmap>),
                                        at(on_mmap<Layer, function::linker_mmap>),
                                        at(on_mprotect<Layer, function::linker_mprotect>),
                                        at(on_syscall<Layer>),
                                        at(on_pkey_mprotect<Layer>),
                                        at(on_mprotect<Layer, function::mprotect>)};
};

}  // namespace

std::array<std::uintptr_t, functions> replacements(std::size_t layer) noexcept {
  PINFOLD_ASSERT(layer < layers, "each layer has its replacements");
  return [&]<std::size_t... Layers>(std::index_sequence<Layers...>) {
    std::array<std::uintptr_t, functions> found{};
    static_cast<void>(((layer == Layers && (found = replacements_of<Layers>(), true)) || ...));
    return found;
  }(std::make_index_sequence<layers>{});
}

void set_original(std::size_t layer, function which, std::uintptr_t address) noexcept {
  PINFOLD_ASSERT(layer < layers && address != 0, "a hooked function continues somewhere");
  wired.originals[layer][static_cast<std::size_t>(which)].store(address, std::memory_order_release);
}

void set_heap_end(const std::uintptr_t* known) noexcept { wired.heap_end.store(known, std::memory_order_relaxed); }

void set_code_lock(code_lock* lock) noexcept { wired.code.store(lock, std::memory_order_seq_cst); }

std::uint64_t code_mapped() noexcept { return loaded.times.load(std::memory_order_seq_cst); }

void set_libc_file(std::uint64_t device, std::uint64_t inode) noexcept {
  loaded.libc_device.store(device, std::memory_order_seq_cst);
  loaded.libc_inode.store(inode, std::memory_order_seq_cst);
}

void post_to(invalidation::event_log* event_log, const invalidation::registered_filter* memory) noexcept {
  PINFOLD_ASSERT(memory == nullptr || event_log != nullptr, "memory is watched for an event log");
  if (event_log != nullptr) wired.event_log.store(event_log, std::memory_order_relaxed);
  wired.memory.store(memory, std::memory_order_release);
}

}  // namespace pinfold::monitors::events
