// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A scheduler of threads of which one runs at a time: it decides at each scheduling point which thread goes on. Time
/// is virtual: it passes when no thread can run, or when the plan says so.
#pragma once

#include "points.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <pthread.h>
#include <random>
#include <semaphore.h>

namespace pinfold::explore {

inline constexpr std::size_t most_threads = 48;
inline constexpr std::int64_t never = INT64_MAX;

/// At the point with this number, the thread loses its turn to the `to`-th other thread that can run. 0: none.
struct preemption {
  std::uint32_t step = 0;
  std::uint32_t to = 0;
};

/// How to choose the threads. By priority (PCT): random priorities, and a few random points at which the thread that
/// runs becomes the least. Else: a thread runs until it blocks, but for the preemptions.
struct plan {
  bool by_priority = true;
  std::uint64_t seed = 0;
  std::array<preemption, 2> preempted{};
  bool atomics = false;  ///< whether accesses to atomic variables are scheduling points
  bool traced = false;
};

/// What schedules leave, in memory that their process shares with its parent.
struct report {
  /// Forgets what the schedule before this one left.
  void begin(std::uint64_t next) noexcept {
    number = next;
    failure[0] = 0;
    steps = others = 0;
    turns = hash = 0;
    traced = false;
  }
  struct turn {
    std::uint32_t step;
    std::uint16_t from;
    std::uint16_t to;
    std::int64_t time;
    const char* what;
    int depth;
    std::array<void*, 12> frames;
  };
  std::uint64_t number;     ///< of the schedule
  std::uint64_t all_steps;  ///< of the schedules before this one
  bool traced;
  std::array<char, 1000> failure;
  std::uint32_t steps;
  std::uint32_t others;  ///< threads that could run at the first preemption
  std::uint64_t turns;
  std::uint64_t hash;  ///< of all steps
  std::array<turn, 1000> trace;
  std::array<std::array<char, 24>, most_threads> names;
};

/// The scheduler of this process.
class scheduler {
 public:
  /// Begins an exploration on this thread, the first of its threads.
  void begin(const plan& how, report& into) noexcept;
  /// Ends it, on the same thread. Returns whether no other thread of it is left, so that another one can begin.
  [[nodiscard]] bool end() noexcept;
  /// Whether this thread belongs to the exploration.
  [[nodiscard]] static bool has_this_thread() noexcept;
  /// Between these, points count. Otherwise a thread runs until it blocks.
  void arm() noexcept { armed_ = true; }
  void disarm() noexcept { armed_ = false; }
  /// Makes taking a mutex a point afterwards, too: a fork while another thread holds one is what may matter.
  void expect_forks() noexcept { forks_ = true; }
  void name_this_thread(const char* name) noexcept;
  /// Whether time passes at a point while threads can run.
  [[nodiscard]] bool jumps() const noexcept { return jump_ != 0; }

  void point(const char* what) noexcept;
  /// The thread has taken a mutex.
  void taken() noexcept {
    if (forks_) point("taken");
  }
  /// Before an access to an atomic variable: a point if the plan says so, and several threads access the variable, of
  /// which one has written it since they began.
  void atomic_point(const volatile void* at, bool writes) noexcept {
    if (armed_ && plan_.atomics) watched_atomic(at, writes);
  }
  void yield() noexcept;
  /// Waits until `wake` is called with `on`. Returns false if the deadline came first.
  bool wait(const void* on, std::int64_t deadline, const char* what) noexcept;
  void wake(const void* on, int most) noexcept;
  /// Virtual time, in nanoseconds. It passes with each look.
  [[nodiscard]] std::int64_t now() noexcept { return time_ += 100; }

  int add_thread() noexcept;
  void enter(int number) noexcept;
  void finish() noexcept;
  void know(int number, pthread_t native) noexcept;
  /// Waits until the thread has ended.
  void join(pthread_t native) noexcept;
  /// For a child of fork(2), before other handlers: the threads that it does not have never run again, so that a wait
  /// for one of them is a deadlock. From here on a thread runs until it blocks.
  void enter_child() noexcept;
  /// Whether a thread waits on the object, or has not returned from its wait.
  [[nodiscard]] bool has_waiter(const void* on) const noexcept;
  /// Reports the failure, and ends the process.
  [[noreturn]] void fail(const char* format, ...) noexcept __attribute__((format(printf, 2, 3)));

 private:
  enum class state : std::uint8_t { none, ready, waiting, ended };
  struct thread {
    sem_t turn;
    state now = state::none;
    const void* on = nullptr;
    const char* what = "";
    std::int64_t deadline = never;
    std::uint64_t since = 0;
    bool in_time = true;
    std::int64_t priority = 0;
    pthread_t native{};
    bool native_known = false;
  };

  struct variable {
    const volatile void* at = nullptr;
    int by = -1;
    bool shared = false;
    bool written = false;
  };

  void watched_atomic(const volatile void* at, bool writes) noexcept;
  void count(const char* what) noexcept;
  [[nodiscard]] int pick() noexcept;
  [[nodiscard]] bool goes_before(int one, int other) const noexcept;
  [[nodiscard]] bool pass_time() noexcept;
  void hand_over(int next, const char* what) noexcept;
  void trace(int next, const char* what) noexcept;
  void preempt(const preemption& by, const char* what) noexcept;
  [[noreturn]] void fail_for_deadlock() noexcept;

  plan plan_;
  report* report_ = nullptr;
  bool armed_ = false;
  bool forks_ = false;
  bool in_child_ = false;
  std::array<thread, most_threads> threads_;
  int count_ = 0;
  std::uint64_t waits_ = 0;
  std::int64_t time_ = 1'000'000'000'000'000;
  std::int64_t least_ = 0;
  std::uint32_t run_ = 0;  // steps since the last turn
  std::array<std::uint32_t, 4> changes_{};
  std::uint32_t jump_ = 0;
  std::minstd_rand random_;
  std::array<variable, 4096> variables_;
};

/// The one of this process.
extern scheduler all_threads;

}  // namespace pinfold::explore
