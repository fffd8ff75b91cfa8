// SPDX-License-Identifier: BSD-3-Clause
// The functions of libc that threads, mutexes, condition variables, atomic waits, clocks and sleeps are made of. A
// thread of an exploration gets the scheduler's; other threads get libc's.
#include "scheduler.hpp"

#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdlib>
#include <ctime>
#include <dlfcn.h>
#include <linux/futex.h>
#include <new>
#include <sys/syscall.h>
#include <unistd.h>

namespace pinfold::explore {
namespace {

template <class F>
F* real(const char* name, F* /*like*/) noexcept {
  void* found = ::dlvsym(RTLD_NEXT, name, "GLIBC_2.3.2");  // of condition variables, whose first version differs
  if (found == nullptr) found = ::dlsym(RTLD_NEXT, name);
  return reinterpret_cast<F*>(found);
}
#define PINFOLD_REAL(name)                              \
  ([]() noexcept {                                      \
    static constinit decltype(&::name) known = nullptr; \
    if (known == nullptr) known = real(#name, &::name); \
    return known;                                       \
  }())

bool here() noexcept { return scheduler::has_this_thread(); }

std::int64_t nanoseconds(const timespec& time) noexcept { return time.tv_sec * 1'000'000'000 + time.tv_nsec; }

// One thread runs at a time, so a mutex that is taken is held by a thread that waits for its turn.
int lock(pthread_mutex_t* mutex) noexcept {
  int taken = 0;
  while ((taken = PINFOLD_REAL(pthread_mutex_trylock)(mutex)) == EBUSY) all_threads.wait(mutex, never, "mutex");
  all_threads.taken();
  return taken;
}

int unlock(pthread_mutex_t* mutex) noexcept {
  const int done = PINFOLD_REAL(pthread_mutex_unlock)(mutex);
  all_threads.wake(mutex, 1);
  return done;
}

int wait(pthread_cond_t* changed, pthread_mutex_t* mutex, std::int64_t deadline) noexcept {
  point("wait");
  unlock(mutex);
  const bool in_time = all_threads.wait(changed, deadline, "condition");
  lock(mutex);
  return in_time ? 0 : ETIMEDOUT;
}

void sleep(std::int64_t until) noexcept { all_threads.wait(nullptr, until, "sleep"); }

long futex(std::uint32_t* word, int call, std::uint32_t value) noexcept {
  switch (call & FUTEX_CMD_MASK) {
    case FUTEX_WAIT:
    case FUTEX_WAIT_BITSET:
      point("futex");
      if (__atomic_load_n(word, __ATOMIC_SEQ_CST) != value) return errno = EAGAIN, -1;
      all_threads.wait(word, never, "futex");
      return 0;
    case FUTEX_WAKE: all_threads.wake(word, static_cast<int>(value)); return 1;
    default: all_threads.fail("a call of futex(2) that the explorer does not know: %d", call);
  }
}

pthread_key_t at_exit;
// After the destructors of the thread's variables: what they do is the thread's, too.
[[maybe_unused]] const int made = ::pthread_key_create(&at_exit, [](void*) { all_threads.finish(); });

// Registered before the library registers handlers: those of a child run in this order.
[[gnu::constructor(101)]] void watch_forks() {
  if (::pthread_atfork(nullptr, nullptr, [] { all_threads.enter_child(); }) != 0) std::abort();
}

struct beginning {
  void* (*run)(void*);
  void* with;
  int number;
};

void* begin(void* given) {
  const beginning mine = *static_cast<beginning*>(given);
  delete static_cast<beginning*>(given);
  ::pthread_setspecific(at_exit, &at_exit);
  all_threads.enter(mine.number);
  return mine.run(mine.with);
}

}  // namespace
}  // namespace pinfold::explore

using pinfold::explore::all_threads;
using pinfold::explore::here;
using pinfold::explore::point;
using pinfold::explore::real;

extern "C" {

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  if (!here()) return PINFOLD_REAL(pthread_mutex_lock)(mutex);
  point("mutex");
  return pinfold::explore::lock(mutex);
}

int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  point("mutex");
  return PINFOLD_REAL(pthread_mutex_trylock)(mutex);
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) noexcept {
  return here() ? pinfold::explore::unlock(mutex) : PINFOLD_REAL(pthread_mutex_unlock)(mutex);
}

int pthread_cond_wait(pthread_cond_t* changed, pthread_mutex_t* mutex) {
  if (!here()) return PINFOLD_REAL(pthread_cond_wait)(changed, mutex);
  return pinfold::explore::wait(changed, mutex, pinfold::explore::never);
}

int pthread_cond_timedwait(pthread_cond_t* changed, pthread_mutex_t* mutex, const timespec* until) {
  if (!here()) return PINFOLD_REAL(pthread_cond_timedwait)(changed, mutex, until);
  return pinfold::explore::wait(changed, mutex, pinfold::explore::nanoseconds(*until));
}

int pthread_cond_clockwait(pthread_cond_t* changed, pthread_mutex_t* mutex, clockid_t clock, const timespec* until) {
  if (!here()) return PINFOLD_REAL(pthread_cond_clockwait)(changed, mutex, clock, until);
  return pinfold::explore::wait(changed, mutex, pinfold::explore::nanoseconds(*until));
}

int pthread_cond_signal(pthread_cond_t* changed) noexcept {
  if (!here()) return PINFOLD_REAL(pthread_cond_signal)(changed);
  all_threads.wake(changed, 1);
  return 0;
}

int pthread_cond_broadcast(pthread_cond_t* changed) noexcept {
  if (!here()) return PINFOLD_REAL(pthread_cond_broadcast)(changed);
  all_threads.wake(changed, INT_MAX);
  return 0;
}

int pthread_cond_destroy(pthread_cond_t* changed) noexcept {
  // libc's would wait for these threads, which never call it here.
  if (here() && all_threads.has_waiter(changed)) all_threads.fail("a condition is destroyed that a thread waits for");
  return PINFOLD_REAL(pthread_cond_destroy)(changed);
}

int pthread_create(pthread_t* made, const pthread_attr_t* attributes, void* (*run)(void*), void* with) noexcept {
  if (!here()) return PINFOLD_REAL(pthread_create)(made, attributes, run, with);
  auto* const given = new (std::nothrow) pinfold::explore::beginning{run, with, -1};
  if (given == nullptr) return ENOMEM;
  const int number = given->number = all_threads.add_thread();
  const int failed = PINFOLD_REAL(pthread_create)(made, attributes, pinfold::explore::begin, given);
  if (failed != 0) all_threads.fail("cannot start a thread: %d", failed);
  all_threads.know(number, *made);
  point("create");
  return 0;
}

int pthread_join(pthread_t joined, void** result) {
  if (here()) all_threads.join(joined);
  return PINFOLD_REAL(pthread_join)(joined, result);
}

int sched_yield() noexcept {
  if (!here()) return PINFOLD_REAL(sched_yield)();
  all_threads.yield();
  return 0;
}

int clock_gettime(clockid_t clock, timespec* now) noexcept {
  if (!here()) return PINFOLD_REAL(clock_gettime)(clock, now);
  const auto time = all_threads.now();
  *now = {time / 1'000'000'000, time % 1'000'000'000};
  return 0;
}

int nanosleep(const timespec* time, timespec* left) {
  if (!here()) return PINFOLD_REAL(nanosleep)(time, left);
  pinfold::explore::sleep(all_threads.now() + pinfold::explore::nanoseconds(*time));
  return 0;
}

int clock_nanosleep(clockid_t clock, int flags, const timespec* time, timespec* left) {
  if (!here()) return PINFOLD_REAL(clock_nanosleep)(clock, flags, time, left);
  const auto start = (flags & TIMER_ABSTIME) != 0 ? 0 : all_threads.now();
  pinfold::explore::sleep(start + pinfold::explore::nanoseconds(*time));
  return 0;
}

// The barrier on all threads needs no kernel where one thread runs at a time.
long syscall(long number, ...) noexcept {
  std::va_list values;
  va_start(values, number);
  long given[6];
  for (long& each : given) each = va_arg(values, long);
  va_end(values);
  if (here() && number == SYS_membarrier) return point("barrier"), 0;
  if (here() && number == SYS_futex)
    return pinfold::explore::futex(reinterpret_cast<std::uint32_t*>(given[0]), static_cast<int>(given[1]),
                                   static_cast<std::uint32_t>(given[2]));
  return PINFOLD_REAL(syscall)(number, given[0], given[1], given[2], given[3], given[4], given[5]);
}
}
