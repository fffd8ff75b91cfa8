// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/userfaultfd/thread.hpp"

#include "os/check.hpp"
#include "os/descriptor_table.hpp"
#include "os/loaded_object.hpp"
#include "os/service_thread.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

namespace pinfold::monitors::uffd {

namespace {

std::atomic<std::uint64_t> read_for_good_in{0};  // the process with such a thread

void rest() noexcept {
  constexpr timespec millisecond{.tv_sec = 0, .tv_nsec = 1'000'000};
  ::nanosleep(&millisecond, nullptr);
}

}  // namespace

// A handler of a signal might allocate, so the thread has all of them blocked.
int reader::create() noexcept {
  PINFOLD_ASSERT(pages_.are_there() && started_.load(std::memory_order_relaxed) == starting,
                 "the thread starts once, on its own stack");
  pthread_attr_t attributes;
  if (const int native = ::pthread_attr_init(&attributes); native != 0) return native;
  const range stack = pages_.stack();
  int native = ::pthread_attr_setstack(&attributes, reinterpret_cast<void*>(stack.begin), stack.size());
  if (native == 0) native = os::start_service_thread(thread_, &attributes, main, this);
  ::pthread_attr_destroy(&attributes);
  return native;
}

result<void> reader::start() noexcept {
  if (!pages_.are_there()) return fail_errno(errc::out_of_resources, errno, "no memory for the monitor's thread");
  int native = start_watching(uffd_, pages_.bell());
  if (native == 0) {
    native = create();
    if (native == 0) {
      started_.wait(starting, std::memory_order_acquire);
      native = started_.load(std::memory_order_acquire);
      if (native == 0) {
        if (here_.maps < 0) static_cast<void>(os::stay_loaded());  // `join` may run when the program unloads it
        return {};
      }
      ::pthread_join(thread_, nullptr);
    }
    static_cast<void>(stop_watching(uffd_, pages_.bell()));
  }
  return fail_errno(errc::out_of_resources, native, "the monitor's thread could not be started");
}

// Discards the bell, which is watched like any memory: madvise returns only after the thread has read the event. So the
// thread ends for no other reason. In a program that locks all its memory (mlockall), the bell is locked, too, and
// MADV_DONTNEED would fail without an event. Where a filter refuses the advice, the bell is mapped over.
void reader::stop_reading() noexcept {
  constexpr int dontneed_locked = 24;  // of Linux 5.18, which older headers lack
  stops_.store(true, std::memory_order_release);
  const range bell = pages_.bell();
  void* const at = reinterpret_cast<void*>(bell.begin);
  constexpr int over = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
  if (::madvise(at, bell.size(), dontneed_locked) != 0 && ::mmap(at, bell.size(), PROT_NONE, over, -1, 0) == MAP_FAILED)
    fail();
}

void reader::join() noexcept {
  outcome_.wait(undecided, std::memory_order_acquire);
  if (outcome_.load(std::memory_order_acquire) == ends) {
    ::pthread_join(thread_, nullptr);
    return;
  }
  static_cast<void>(os::stay_loaded());
  ::pthread_detach(thread_);
  read_for_good_in.store(event_log_.process(), std::memory_order_release);
}

void reader::fail() noexcept {
  failed_.store(true, std::memory_order_release);
  event_log_.post_everything(invalidation::source::userfaultfd);
}

void* reader::main(void* self) noexcept {
  auto& mine = *static_cast<reader*>(self);
  const int native = mine.unshare_descriptors();
  mine.started_.store(native, std::memory_order_release);
  mine.started_.notify_one();
  if (native == 0) mine.run();
  return nullptr;
}

int reader::unshare_descriptors() noexcept {
  thread_id_ = static_cast<pid_t>(::syscall(SYS_gettid));
  ::prctl(PR_SET_NAME, "pinfold-uffd");
  if (const int native = os::keep_only({&uffd_, 1}); native != 0) return native;
  if (!descriptor_.is_this()) return EBADF;  // another thread has closed it, and may have got the number
  here_ = open_own_memory();
  const int native = here_.maps < 0 ? errno : 0;
  if (native != 0 && read_for_good_in.load(std::memory_order_acquire) == event_log_.process()) return native;
  descriptor_.belong_to(thread_id_);
  return 0;
}

// Reads also where the poll fails, as with a descriptor limit of 0: a thread that unmaps watched memory waits for it.
void reader::run() noexcept {
  while (!rung_) {
    if (poll_events(uffd_) != 0) pause();
    read_and_publish();
  }
  const int uffd = uffd_;
  const bool released = release_all();
  static_cast<void>(stop_watching(uffd, pages_.bell()));
  if (released) ::syscall(SYS_close, uffd);  // before the thread ends, whose exit may have to wait for this
  outcome_.store(released ? ends : stays, std::memory_order_release);
  outcome_.notify_one();
  if (!released) read_for_good(uffd);
}

// A table of descriptors that this process cannot reach, as a child's, may have a copy: it would keep the memory
// watched, and nothing would read. Reads meanwhile, and until no caller waits, for a second at most. Returns false if
// memory may be watched still.
bool reader::release_all() noexcept {
  mapping_list all(here_.maps);
  for (range one = all.next(); !one.empty(); one = all.next()) {
    if (!one.contains(pages_.bell())) stop_watching_mapping(uffd_, here_.pagemap, one);
    read_and_publish();
  }
  constexpr auto limit = std::chrono::seconds(1);
  const auto until = std::chrono::steady_clock::now() + limit;
  while (traffic_on(uffd_) == traffic::some && std::chrono::steady_clock::now() < until) read_and_publish();
  return all.is_complete();
}

void reader::read_for_good(int uffd) noexcept {
  for (;;) {
    const bool polled = poll_events(uffd) == 0;
    const event seen = read_event(uffd);
    if (!seen.awaited.empty()) let_go_on(uffd, seen.awaited);
    if (!polled || (seen.native != 0 && seen.native != EAGAIN && seen.native != EINTR)) rest();
  }
}

// One number, one read, one event. The kernel releases the event's caller within the read, so from then on that caller
// finds the number reserved. A read of two events would release the second caller before its event has a number: that
// caller could look up, wait for this number alone, and find its old registration.
void reader::read_and_publish() noexcept {
  const auto reserved = event_log_.reserve();
  const event seen = read_event(uffd_);
  publish(reserved, seen);
  if (!seen.awaited.empty()) let_go_on(uffd_, seen.awaited);
  if (seen.native != 0 && seen.native != EAGAIN && seen.native != EINTR) pause();
}

void reader::publish(std::uint64_t reserved, const event& seen) noexcept {
  if (seen.gone == pages_.bell()) rung_ = true;
  event_log_.publish(reserved, lost_by(seen), invalidation::source::userfaultfd);
}

// Returns the lost memory that is registered. A mremap onto registered memory loses two ranges, but the event log holds
// one range for a number: the range that contains both. This is rare, because the kernel first reports the replaced
// mapping by an event of its own.
range reader::lost_by(const event& seen) const noexcept {
  const range gone = watched_.touches(seen.gone) ? seen.gone : range{};
  if (!watched_.touches(seen.replaced)) return gone;
  if (gone.empty()) return seen.replaced;
  return {std::min(gone.begin, seen.replaced.begin), std::max(gone.end, seen.replaced.end)};
}

void reader::pause() noexcept {
  if (!failed()) fail();
  rest();
  rung_ = rung_ || stops_.load(std::memory_order_acquire);  // an event that cannot be read rings no bell
}

}  // namespace pinfold::monitors::uffd
