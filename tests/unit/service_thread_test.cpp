// SPDX-License-Identifier: BSD-3-Clause
// Threads of the library that other threads wait for.
#include "os/service_thread.hpp"

#include <gtest/gtest.h>

#include <pthread.h>
#include <sched.h>
#include <thread>

namespace pinfold::testing::service_thread_test {
namespace {

int cpus_of_this_thread() {
  cpu_set_t allowed;
  return ::sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 0;
}

void* count_cpus(void* into) {
  *static_cast<int*>(into) = cpus_of_this_thread();
  return nullptr;
}

int cpus_of_a_service_thread() {
  pthread_t made{};
  int seen = 0;
  EXPECT_EQ(os::start_service_thread(made, nullptr, count_cpus, &seen), 0);
  EXPECT_EQ(::pthread_join(made, nullptr), 0);
  return seen;
}

void bind_to_one_cpu() {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(::sched_getcpu(), &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
}

TEST(service_thread, is_bound_as_the_thread_that_starts_it) {
  std::thread([] {
    bind_to_one_cpu();
    EXPECT_EQ(cpus_of_a_service_thread(), 1);
  }).join();
}

// A thread that polls a device there would not let it run.
TEST(service_thread, is_not_bound_to_the_cpu_of_a_real_time_thread) {
  const int all = cpus_of_this_thread();
  bool permitted = false;
  int seen = 0;
  std::thread([&] {
    bind_to_one_cpu();
    const sched_param lowest{.sched_priority = 1};
    permitted = ::pthread_setschedparam(::pthread_self(), SCHED_FIFO, &lowest) == 0;
    if (permitted) seen = cpus_of_a_service_thread();
  }).join();
  if (!permitted) GTEST_SKIP() << "this user may not have real-time threads";
  EXPECT_GE(seen, all);
}

void* note_policy(void* into) {
  *static_cast<int*>(into) = ::sched_getscheduler(0);
  return nullptr;
}

TEST(service_thread, is_an_ordinary_one_where_an_idle_thread_starts_it) {
  int seen = -1;
  bool permitted = false;
  std::thread([&] {
    const sched_param none{};
    ASSERT_EQ(::pthread_setschedparam(::pthread_self(), SCHED_IDLE, &none), 0);
    pthread_t made{};
    ASSERT_EQ(os::start_service_thread(made, nullptr, note_policy, &seen), 0);
    ASSERT_EQ(::pthread_join(made, nullptr), 0);
    permitted = ::pthread_setschedparam(::pthread_self(), SCHED_OTHER, &none) == 0;
  }).join();
  EXPECT_EQ(seen, permitted ? SCHED_OTHER : SCHED_IDLE);
}

}  // namespace
}  // namespace pinfold::testing::service_thread_test
