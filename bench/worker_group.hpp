// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Threads that measure, each on a CPU of its own as far as there are enough.
#pragma once

#include "sampling_windows.hpp"

#include <algorithm>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <sched.h>
#include <thread>
#include <vector>

namespace bench {

/// Returns the CPUs on which this thread may run; none when the system does not tell.
[[nodiscard]] inline std::vector<std::size_t> usable_cpus() {
  cpu_set_t set;
  std::vector<std::size_t> cpus;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cpus;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  }
  return cpus;
}

/// Moves this thread to the CPU, and with it the threads and processes that it starts from now on. Returns false, with
/// errno, when it stays where it is: its figures are merely noisier.
inline bool stay_on(std::size_t cpu) noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return ::sched_setaffinity(0, sizeof set, &set) == 0;
}

/// Returns how many threads of a worker_group take turns on the CPU with the most of them; 1 when each has a CPU of its
/// own.
[[nodiscard]] inline unsigned threads_on_a_cpu(unsigned threads) {
  const auto cpus = static_cast<unsigned>(std::max<std::size_t>(1, usable_cpus().size()));
  return (threads + cpus - 1) / cpus;
}

/// Starts the threads of a worker_group at the same time, any number of times.
class starting_line {
 public:
  explicit starting_line(unsigned threads) : barrier_(threads, {&began_ns_}) {}

  /// Waits for all threads. Returns the time at which the last one came, in nanoseconds of the steady clock: the same
  /// to each thread, however much later it gets a CPU.
  std::uint64_t wait() {
    barrier_.arrive_and_wait();
    return began_ns_;
  }

  /// Removes this thread: the others do not wait for it any more.
  void leave() { barrier_.arrive_and_drop(); }

 private:
  struct stamp {
    std::uint64_t* at;
    void operator()() const noexcept { *at = now_ns(); }
  };

  std::uint64_t began_ns_ = 0;
  std::barrier<stamp> barrier_;
};

/// Runs `work(thread, line)` on that many pinned threads. Throws the exception of the first thread that threw; the
/// others must not be waiting for that thread at the line.
template <class Work>
void run_crew(unsigned threads, Work work) {
  const auto cpus = usable_cpus();
  starting_line line(threads);
  std::exception_ptr problem;
  std::mutex problem_mutex;
  {
    std::vector<std::jthread> worker_group;
    for (unsigned thread = 0; thread < threads; ++thread) {
      worker_group.emplace_back([&, thread] {
        try {
          if (!cpus.empty()) stay_on(cpus[thread % cpus.size()]);
          work(thread, line);
        } catch (...) {
          line.leave();
          const std::scoped_lock lock(problem_mutex);
          if (!problem) problem = std::current_exception();
        }
      });
    }
  }
  if (problem) std::rethrow_exception(problem);
}

}  // namespace bench
