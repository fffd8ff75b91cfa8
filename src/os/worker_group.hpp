// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Threads of the library that share one work.
#pragma once

#include "os/no_cancellation.hpp"

#include <pinfold/error.hpp>

#include <cerrno>
#include <cstddef>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace pinfold::os {

/// The destructor joins them. Not thread-safe. A forked child, which has no such threads, must not destroy its copy. No
/// callback on such a thread can cancel it; it has the signal mask of the thread that started it.
class worker_group {
 public:
  /// Starts threads that call `work(number)`, with the numbers from 0 on: `count` of them, or fewer where the kernel or
  /// the memory has no room, because fewer threads are only slower. Returns how many. Errors: `out_of_resources`, with
  /// the system's code, if not even one can be started.
  template <class Work>
  [[nodiscard]] result<std::size_t> start(std::size_t count, const Work& work) noexcept {
    std::size_t started = 0;
    try {
      for (; started < count; ++started) threads_.emplace_back(run<Work>, work, started);
    } catch (const std::system_error& refused) {
      if (started == 0) return fail_errno(errc::out_of_resources, refused.code().value(), "cannot start a thread");
    } catch (const std::bad_alloc&) {
      if (started == 0) return fail_errno(errc::out_of_resources, ENOMEM, "no memory for a thread");
    }
    return started;
  }

  void join() noexcept { threads_.clear(); }

  /// Lets the threads end by themselves.
  void detach() noexcept {
    for (auto& one : threads_) one.detach();
    threads_.clear();
  }

 private:
  template <class Work>
  static void run(const Work& work, std::size_t number) noexcept {
    const detail::no_cancellation whole;
    work(number);
  }

  std::vector<std::jthread> threads_;
};

}  // namespace pinfold::os
