// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// One userfaultfd with its thread, from start to end.
#pragma once

#include "invalidation/event_log.hpp"
#include "invalidation/registered_filter.hpp"
#include "monitors/userfaultfd/kernel.hpp"
#include "monitors/userfaultfd/maps.hpp"
#include "monitors/userfaultfd/thread.hpp"

#include <atomic>
#include <chrono>

namespace pinfold::monitors::uffd {

/// Thread-safe, except for `start` and `end`, which one thread calls. `watch` and `wait_for_events` may still run in
/// other threads during `end` and later: they use the descriptor only after a check that its number refers to this
/// userfaultfd. The session's memory must outlive them.
class session {
 public:
  session(invalidation::event_log& event_log, invalidation::registered_filter& watched, descriptor opened) noexcept
      : event_log_(event_log), descriptor_(opened), reader_(event_log, watched, descriptor_) {}
  session(const session&) = delete;
  session& operator=(const session&) = delete;

  [[nodiscard]] result<void> start() noexcept;

  /// Waits until no thread is in `watch`, for a second at most, releases all memory from the watch, and joins the
  /// thread. Only for the process that called `start`.
  void end() noexcept;

  /// Called after `end`. Closes the descriptors if `end` was called with another table of descriptors than this
  /// thread's. Returns whether there may be some in yet another table.
  [[nodiscard]] bool close_left() noexcept;

  /// Returns a constant text: why no entry may be kept because of this session; null while it works. Two system calls.
  [[nodiscard]] const char* trouble() const noexcept;

  // As in `invalidation::monitor`.
  [[nodiscard]] result<void> watch(const range& pages) noexcept;
  void wait_for_events() noexcept;

 private:
  [[nodiscard]] result<void> watch_counted(const range& pages) noexcept;
  [[nodiscard]] bool gets_quiet(std::chrono::milliseconds at_most) noexcept;
  void lose_descriptor() noexcept;
  [[nodiscard]] bool has_failed() const noexcept {
    return reader_.failed() || lost_.load(std::memory_order_acquire) || ended_.load(std::memory_order_seq_cst);
  }

  static constexpr auto quiet_limit = std::chrono::milliseconds(invalidation::event_log::wait_limit_ms);
  static constexpr auto watching_limit_at_end = std::chrono::seconds(1);
  static constexpr int most_delays = 1000;

  invalidation::event_log& event_log_;
  descriptor descriptor_;          // constant after `start`
  descriptor maps_ = open_maps();  // constant
  reader reader_;
  std::atomic<int> delays_{0};     // in a row
  std::atomic<bool> lost_{false};  // the number refers to another file, or to none
  std::atomic<bool> ended_{false};
  std::atomic<int> watching_{0};  // threads in `watch`
  bool left_ = false;             // since `end`
  bool kept_ = false;
  bool started_ = false;
};

}  // namespace pinfold::monitors::uffd
