// SPDX-License-Identifier: BSD-3-Clause
// Makes the process's event_log. Separate from event_log.cpp, which the thread sanitizer must ignore: here it has to
// see that a thread which finds the event log finds it constructed.
#include "invalidation/event_log.hpp"

#include "invalidation/background_open.hpp"
#include "os/check.hpp"
#include "os/wiped_pages.hpp"

#include <new>
#include <pthread.h>
#include <sys/mman.h>

namespace pinfold::invalidation {

std::atomic<event_log*> event_log::made{nullptr};
std::atomic<event_log::observer> event_log::on_event{nullptr};

namespace {

std::atomic<std::uint64_t> last_process{0};  // inherited by children, so that their numbers differ from their parents'

std::atomic<bool> not_wiped{false};  // where the kernel does not wipe the event log in a child (before Linux 4.14)

}  // namespace

// Registered when the library is loaded: fork(2) runs only the handlers that were registered when it began.
const int event_log::forks_unwatched = ::pthread_atfork(nullptr, nullptr, in_child);

void event_log::in_child() noexcept {
  background_open::forget_in_child();
  event_log* here = not_wiped.load(std::memory_order_seq_cst) ? if_there() : nullptr;
  if (here == nullptr) return;
  here->process_.store(0, std::memory_order_seq_cst);
  here->generation_.store(0, std::memory_order_seq_cst);
  here->outstanding_.store(0, std::memory_order_seq_cst);
  here->filled_.store(0, std::memory_order_seq_cst);
}

event_log* event_log::make() {
  void* fresh = os::wiped_pages(sizeof(event_log));
  const bool wiped = fresh != nullptr;
  if (!wiped) fresh = ::mmap(nullptr, sizeof(event_log), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) throw std::bad_alloc();
  auto* mine = static_cast<event_log*>(fresh);  // zeroed, as in a child: a constructor would touch every page
  if (!wiped && forks_unwatched != 0) {
    ::munmap(fresh, sizeof(event_log));
    throw std::bad_alloc();
  }
  if (!wiped) not_wiped.store(true, std::memory_order_seq_cst);
  event_log* none = nullptr;
  if (!made.compare_exchange_strong(none, mine, std::memory_order_seq_cst)) {
    ::munmap(fresh, sizeof(event_log));
    return none;
  }
  return mine;
}

event_log& event_log::here() {
  event_log* mine = if_there();
  if (mine == nullptr) mine = make();
  std::uint64_t wiped = 0;
  if (mine->process_.load(std::memory_order_seq_cst) != 0) return *mine;
  const auto number = last_process.fetch_add(1, std::memory_order_seq_cst) + 1;
  PINFOLD_ASSERT(number >> (64 - process_shift) == 0, "the number of a process fits above its events");
  if (mine->process_.compare_exchange_strong(wiped, number, std::memory_order_seq_cst))
    mine->generation_.fetch_add(number << process_shift, std::memory_order_seq_cst);
  return *mine;
}

}  // namespace pinfold::invalidation
