// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A monitor with memory to watch, and the smallest cache that relies on it.
#pragma once

#include "monitors/userfaultfd/kernel.hpp"
#include "monitors/userfaultfd/userfaultfd.hpp"
#include "support/process_limits.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <sys/mman.h>
#include <utility>
#include <vector>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
/// Children start monitors, which have threads.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
#endif
#endif

namespace pinfold::testing {

inline constexpr std::size_t page = 4096;

/// The userfaultfd monitor of this process; null, with the reason, where this system has none.
struct uffd_monitor {
  invalidation::event_log& event_log = invalidation::event_log::here();
  invalidation::registered_filter& watched = invalidation::registered_filter::here();
  error refusal;
  std::unique_ptr<invalidation::monitor> monitor = make();

  [[nodiscard]] std::unique_ptr<invalidation::monitor> make() {
    auto made = monitors::make_userfaultfd(event_log, watched);
    if (!made) refusal = made.error();
    return made ? std::move(*made) : nullptr;
  }
  invalidation::monitor* operator->() const noexcept { return monitor.get(); }

  /// Asks the monitor to watch, as a cache does before it registers.
  result<void> watch_for(const range& pages) const {
    if (!watched.prepare(pages)) return fail(errc::out_of_resources, "no counters");
    watched.add(pages);
    auto told = monitor->watch(pages);
    if (!told) watched.remove(pages);
    return told;
  }
};

/// Skips the test, with the reason, where this system has no userfaultfd.
#define PINFOLD_NEED_MONITOR(in) \
  if (!(in).monitor) GTEST_SKIP() << describe((in).refusal)

/// A mapping that lives for a scope.
class mapped {
 public:
  explicit mapped(std::size_t bytes, int flags = MAP_PRIVATE | MAP_ANONYMOUS, int file = -1,
                  int protection = PROT_READ | PROT_WRITE, std::uintptr_t where = 0)
      : at_(::mmap(reinterpret_cast<void*>(where), bytes, protection, flags, file, 0)), bytes_(bytes) {}
  mapped(const mapped&) = delete;
  mapped& operator=(const mapped&) = delete;
  ~mapped() {
    if (there()) ::munmap(at_, bytes_);
  }

  [[nodiscard]] bool there() const { return at_ != MAP_FAILED; }
  [[nodiscard]] range all() const { return {begin(), begin() + bytes_}; }
  [[nodiscard]] range part(std::size_t from, std::size_t to) const { return {begin() + from, begin() + to}; }
  [[nodiscard]] std::uintptr_t begin() const { return reinterpret_cast<std::uintptr_t>(at_); }
  [[nodiscard]] void* at(std::size_t offset = 0) const { return static_cast<std::byte*>(at_) + offset; }
  void touch() const {
    for (std::size_t i = 0; i < bytes_; i += page) *static_cast<volatile char*>(at(i)) = 1;
  }
  void forget() { at_ = MAP_FAILED; }

 private:
  void* at_;
  std::size_t bytes_;
};

/// Reads the event log as a cache does.
class event_log_reader {
 public:
  explicit event_log_reader(const invalidation::event_log& event_log)
      : event_log_(event_log), cursor_(event_log.generation().load()) {}

  /// Returns all events since the last call, except empty ranges.
  std::vector<range> ranges() {
    std::vector<range> all;
    range gone;
    for (auto what = event_log_.read(cursor_, gone); what != invalidation::read_status::nothing;
         what = event_log_.read(cursor_, gone)) {
      if (what == invalidation::read_status::everything) gone = {0, UINTPTR_MAX};
      if (!gone.empty()) all.push_back(gone);
    }
    return all;
  }

  /// Returns whether a part of `some` was posted as gone since the last call; allocates nothing.
  bool lost(const range& some) {
    bool found = false;
    range gone;
    for (auto what = event_log_.read(cursor_, gone); what != invalidation::read_status::nothing;
         what = event_log_.read(cursor_, gone))
      if (what == invalidation::read_status::everything || gone.overlaps(some)) found = true;
    return found;
  }

 private:
  const invalidation::event_log& event_log_;
  std::uint64_t cursor_;
};

}  // namespace pinfold::testing
