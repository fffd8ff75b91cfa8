// SPDX-License-Identifier: BSD-3-Clause
// The explorer finds what it looks for, and repeats it.
#include "forks.hpp"
#include "runs.hpp"

#include "os/mutex.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <new>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

namespace pinfold::explore::scheduler_test {
namespace {

using std::chrono::steady_clock;

void run_both(const std::function<void()>& one, const std::function<void()>& other) {
  std::thread first(one);
  std::thread second(other);
  all_threads.arm();
  first.join();
  second.join();
  all_threads.disarm();
}

/// Returns the first failure of the schedules with one preemption, or with none.
std::string first_failure(const std::function<void()>& threads) {
  constexpr std::uint32_t most = 50;
  for (std::uint32_t step = 0; step < most; ++step) {
    const auto got = run({.by_priority = false, .preempted = {{{step, 0}, {}}}}, threads);
    if (!got.failure.empty()) return got.failure;
  }
  return {};
}

void lose_an_update() {
  int count = 0;
  const auto add = [&] {
    const int before = count;
    point("between");
    count = before + 1;
  };
  run_both(add, add);
  if (count != 2) all_threads.fail("an update was lost");
}

void add_under_a_mutex() {
  os::mutex guard;
  std::mutex second;
  int count = 0;
  const auto add = [&] {
    const os::scoped_lock one(guard);
    const std::scoped_lock other(second);
    const int before = count;
    point("between");
    count = before + 1;
  };
  run_both(add, add);
  if (count != 2) all_threads.fail("an update was lost");
}

void lock_in_two_orders() {
  std::mutex first;
  os::mutex second;
  run_both(
      [&] {
        const std::scoped_lock one(first);
        const os::scoped_lock other(second);
      },
      [&] {
        const os::scoped_lock one(second);
        const std::scoped_lock other(first);
      });
}

void wait_without_a_look() {
  std::mutex guard;
  std::condition_variable changed;
  run_both(
      [&] {
        std::unique_lock lock(guard);
        changed.wait(lock);
      },
      [&] {
        const std::scoped_lock lock(guard);
        changed.notify_one();
      });
}

// A child has no thread that would unlock the mutex.
template <class Mutex>
void lock_in_a_child() {
  Mutex guard;
  run_both(
      [&] {
        all_threads.expect_forks();
        const std::scoped_lock held(guard);
      },
      [&] { fork_here([&] { const std::scoped_lock held(guard); }); });
}

void use_threads_in_a_child() {
  int count = 0;
  run_both([] { point("between"); },
           [&] {
             fork_here([&] {
               run_both([&] { ++count; }, [&] { ++count; });
               if (count != 2) all_threads.fail("a thread of the child did not run");
             });
           });
  if (count != 0) all_threads.fail("the parent ran what the child runs");
}

void destroy_a_condition_in_a_child() {
  std::mutex guard;
  alignas(std::condition_variable) std::array<std::byte, sizeof(std::condition_variable)> place;
  auto* const changed = new (place.data()) std::condition_variable;
  bool done = false;
  run_both(
      [&] {
        std::unique_lock lock(guard);
        changed->wait(lock, [&] { return done; });
      },
      [&] {
        fork_here([&] { changed->~condition_variable(); });
        const std::scoped_lock lock(guard);
        done = true;
        changed->notify_one();
      });
  changed->~condition_variable();
}

TEST(scheduler, finds_a_lost_update_with_one_preemption) {
  EXPECT_EQ(first_failure(lose_an_update), "an update was lost");
  EXPECT_EQ(first_failure(add_under_a_mutex), "");
}

TEST(scheduler, finds_a_deadlock) {
  const auto found = first_failure(lock_in_two_orders);
  EXPECT_TRUE(found.starts_with("deadlock: ")) << found;
}

TEST(scheduler, finds_a_lost_notification) {
  std::string found;
  for (std::uint64_t seed = 0; found.empty() && seed < 100; ++seed)
    found = run({.seed = seed}, wait_without_a_look).failure;
  EXPECT_TRUE(found.starts_with("deadlock: ")) << found;
}

TEST(scheduler, finds_what_a_child_of_fork_waits_for_in_vain) {
  EXPECT_EQ(first_failure(lock_in_a_child<std::mutex>), "in the child: deadlock: 2 in mutex");
  EXPECT_EQ(first_failure(lock_in_a_child<os::mutex>), "in the child: deadlock: 2 in lock");
  EXPECT_EQ(first_failure(destroy_a_condition_in_a_child),
            "in the child: a condition is destroyed that a thread waits for");
}

TEST(scheduler, runs_threads_of_a_child_of_fork) { EXPECT_EQ(first_failure(use_threads_in_a_child), ""); }

TEST(scheduler, reports_how_a_child_of_fork_ended) {
  EXPECT_EQ(run({}, [] { fork_here([] { std::abort(); }); }).failure, "the child ended by signal Aborted");
  EXPECT_EQ(run({}, [] { fork_here([] { all_threads.fail("number %d", 1); }); }).failure, "in the child: number 1");
}

TEST(scheduler, repeats_a_schedule) {
  constexpr std::uint64_t seeds = 20;
  for (std::uint64_t seed = 0; seed < seeds; ++seed) {
    const auto once = run({.seed = seed}, add_under_a_mutex);
    const auto again = run({.seed = seed}, add_under_a_mutex);
    EXPECT_EQ(once.failure, "");
    EXPECT_EQ(once.hash, again.hash);
  }
}

TEST(scheduler, repeats_a_series_up_to_the_schedule_that_fails) {
  const auto make = [](std::uint64_t number) {
    return schedule{{.seed = number}, [number] {
                      add_under_a_mutex();
                      if (number == 7) all_threads.fail("number 7");
                    }};
  };
  const auto once = run_series(2, 20, make);
  const auto again = run_series(2, 7, make);
  EXPECT_EQ(once.number, 7U);
  EXPECT_EQ(once.last.failure, "number 7");
  EXPECT_EQ(again.last.failure, "number 7");
  EXPECT_EQ(once.last.hash, again.last.hash);
}

TEST(scheduler, goes_on_in_another_process_if_a_schedule_leaves_a_thread) {
  void* const memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* const process_of = static_cast<pid_t*>(memory);
  const auto got = run_series(0, 4, [&](std::uint64_t number) {
    return schedule{{}, [number, process_of] {
                      process_of[number] = ::getpid();
                      std::thread left([] {});
                      if (number == 2) return left.detach();
                      left.join();
                    }};
  });
  EXPECT_EQ(got.last.failure, "");
  EXPECT_EQ(got.number, 4U);
  EXPECT_EQ(process_of[0], process_of[2]);
  EXPECT_NE(process_of[2], process_of[3]);
  EXPECT_EQ(process_of[3], process_of[4]);
  ::munmap(memory, 4096);
}

TEST(scheduler, lets_time_pass_when_no_thread_can_run) {
  const auto start = steady_clock::now();
  const auto got = run({}, [] {
    const auto before = steady_clock::now();
    std::mutex guard;
    std::condition_variable never_changed;
    std::unique_lock lock(guard);
    if (never_changed.wait_for(lock, std::chrono::hours(1)) != std::cv_status::timeout) all_threads.fail("no time-out");
    std::this_thread::sleep_for(std::chrono::hours(1));
    if (steady_clock::now() - before < std::chrono::hours(2)) all_threads.fail("too early");
  });
  EXPECT_EQ(got.failure, "");
  EXPECT_LT(steady_clock::now() - start, std::chrono::minutes(10));
}

TEST(scheduler, reports_how_a_process_ended) {
  EXPECT_EQ(run({}, [] { std::abort(); }).failure, "the process ended by signal Aborted");
  EXPECT_EQ(run({}, [] { all_threads.fail("number %d", 1); }).failure, "number 1");
}

}  // namespace
}  // namespace pinfold::explore::scheduler_test
