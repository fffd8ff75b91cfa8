// SPDX-License-Identifier: BSD-3-Clause
#include "os/service_thread.hpp"

#include "os/all_signals_blocked.hpp"

#include <array>
#include <cstring>
#include <sched.h>

namespace pinfold::os {

namespace {

// The kernel leaves out CPUs that the process may not use.
int allow_every_cpu(pthread_attr_t& attributes) noexcept {
  std::array<cpu_set_t, 8> all;  // the kernel's limit is 8192
  std::memset(all.data(), 0xff, sizeof all);
  return ::pthread_attr_setaffinity_np(&attributes, sizeof all, all.data());
}

int use_ordinary_policy(pthread_attr_t& attributes) noexcept {
  const int native = ::pthread_attr_setschedpolicy(&attributes, SCHED_OTHER);
  return native != 0 ? native : ::pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
}

int inherit_all(pthread_attr_t& attributes) noexcept {
  constexpr cpu_set_t inherited{};
  const int native = ::pthread_attr_setaffinity_np(&attributes, 0, &inherited);
  return native != 0 ? native : ::pthread_attr_setinheritsched(&attributes, PTHREAD_INHERIT_SCHED);
}

int start(pthread_t& made, pthread_attr_t& attributes, void* (*body)(void*), void* argument) noexcept {
  constexpr int deadline = 6;                                         // SCHED_DEADLINE
  const int policy = ::sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;  // with the flag, it is not inherited
  int native = policy == SCHED_IDLE ? use_ordinary_policy(attributes) : 0;
  if (policy == SCHED_FIFO || policy == SCHED_RR || policy == deadline) native = allow_every_cpu(attributes);
  if (native == 0) native = ::pthread_create(&made, &attributes, body, argument);
  if (native == 0 || inherit_all(attributes) != 0) return native;
  return ::pthread_create(&made, &attributes, body, argument);  // this user may not, or a filter refuses it
}

}  // namespace

int start_service_thread(pthread_t& made, pthread_attr_t* attributes, void* (*body)(void*), void* argument) noexcept {
  const all_signals_blocked guard;
  if (attributes != nullptr) return start(made, *attributes, body, argument);
  pthread_attr_t own;
  int native = ::pthread_attr_init(&own);
  if (native != 0) return native;
  native = start(made, own, body, argument);
  ::pthread_attr_destroy(&own);
  return native;
}

}  // namespace pinfold::os
