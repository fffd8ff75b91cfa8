// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory that is unmapped and mapped again at the same address, and a cache of one entry that must notice it.
#pragma once

#include "support/process_limits.hpp"
#include "support/watched_pages.hpp"

#include <atomic>
#include <functional>
#include <sched.h>
#include <stdexcept>
#include <stop_token>
#include <sys/mman.h>
#include <thread>

namespace pinfold::testing {

/// Keeps this thread, and those that it starts, on one CPU.
class on_one_cpu {
 public:
  explicit on_one_cpu(bool wanted = true) {
    CPU_ZERO(&before_);
    ::sched_getaffinity(0, sizeof before_, &before_);
    if (!wanted) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    for (std::size_t i = 0; i < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++i)
      if (CPU_ISSET(i, &before_)) CPU_SET(i, &one);
    ::sched_setaffinity(0, sizeof one, &one);
  }
  on_one_cpu(const on_one_cpu&) = delete;
  on_one_cpu& operator=(const on_one_cpu&) = delete;
  ~on_one_cpu() { ::sched_setaffinity(0, sizeof before_, &before_); }

 private:
  cpu_set_t before_;
};

/// A monitor with the naive protocol: it posts events after it has read them, and announces nothing before. That is not
/// enough.
class naive_monitor {
 public:
  explicit naive_monitor(invalidation::event_log& event_log) : uffd_(monitors::uffd::open().value()) {
    if (monitors::uffd::start_watching(uffd_.number, bell_.all()) != 0) throw std::runtime_error("no bell");
    thread_ = std::jthread([this, &event_log] {
      for (bool rung = false; !rung;) {
        static_cast<void>(monitors::uffd::poll_events(uffd_.number));
        const auto seen = monitors::uffd::read_event(uffd_.number);
        if (seen.native == 0) event_log.post(seen.gone);
        rung = seen.gone == bell_.all();
      }
    });
  }
  naive_monitor(const naive_monitor&) = delete;
  naive_monitor& operator=(const naive_monitor&) = delete;
  ~naive_monitor() {
    ::madvise(bell_.at(), page, MADV_DONTNEED);  // waits until the thread has read this event, which ends its loop
    thread_.join();
    uffd_.close();
  }

  [[nodiscard]] bool watch(const range& pages) const {
    return monitors::uffd::start_watching(uffd_.number, pages) == 0;
  }

 private:
  mapped bell_{page};
  monitors::uffd::descriptor uffd_;
  std::jthread thread_;
};

/// `watch` and `settle` are those of the monitor under test.
class reused_address {
 public:
  reused_address(uffd_monitor& in, std::function<bool(const range&)> watch, std::function<void()> settle)
      : in_(in), watch_(std::move(watch)), settle_(std::move(settle)), cache_(in.event_log) {
    if (!in_.watched.prepare(memory)) throw std::bad_alloc();
    in_.watched.add(memory);
  }
  reused_address(const reused_address&) = delete;
  reused_address& operator=(const reused_address&) = delete;
  ~reused_address() { in_.watched.remove(memory); }

  /// Counts how often the entry was found though the memory is other memory. Calls `on` before each round.
  std::size_t by_one_thread(const std::function<bool()>& on) {
    std::size_t stale = 0;
    while (on()) {
      must(map());
      fill();
      must(unmap() && map());
      settle_();
      if (is_cached()) ++stale;
      must(unmap());
    }
    return stale;
  }

  /// Does the same where one thread unmaps, and another maps as soon as it can, and looks.
  std::size_t by_two_threads(const std::function<bool()>& on) {
    std::size_t stale = 0;
    std::atomic<bool> others{false};
    must(map());
    fill();
    std::jthread other([&](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        if (!others.load(std::memory_order_acquire)) {
          ::sched_yield();
          continue;
        }
        for (int tries = 1; !map(); ++tries)
          if (tries % 16 == 0) ::sched_yield();  // this thread may be alone on this CPU
        settle_();
        if (is_cached()) ++stale;
        fill();
        others.store(false, std::memory_order_release);
      }
    });
    while (on()) {
      others.store(true, std::memory_order_release);
      must(unmap());
      while (others.load(std::memory_order_acquire)) ::sched_yield();
    }
    other.request_stop();
    other.join();
    must(unmap());
    return stale;
  }

 private:
  static constexpr range memory{quiet_address, quiet_address + 4 * page};

  static void must(bool done) {
    if (!done) throw std::runtime_error("the memory could not be mapped, unmapped or watched");
  }
  static bool map() {
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_POPULATE;
    return ::mmap(reinterpret_cast<void*>(memory.begin), memory.size(), PROT_READ | PROT_WRITE, flags, -1, 0) !=
           MAP_FAILED;
  }
  static bool unmap() { return ::munmap(reinterpret_cast<void*>(memory.begin), memory.size()) == 0; }

  void fill() {
    must(watch_(memory));
    static_cast<void>(cache_.lost(memory));
    valid_ = true;
  }
  bool is_cached() {
    if (cache_.lost(memory)) valid_ = false;
    return valid_;
  }

  uffd_monitor& in_;
  std::function<bool(const range&)> watch_;
  std::function<void()> settle_;
  event_log_reader cache_;
  bool valid_ = false;
};

/// Returns a function that returns true `rounds` times.
inline std::function<bool()> times(std::size_t rounds) {
  return [rounds, done = std::size_t{0}]() mutable { return done++ < rounds; };
}

}  // namespace pinfold::testing
