// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The monitors of one cache, as its engine asks them. Thread-safe.
#pragma once

#include "core/reporter.hpp"
#include "invalidation/monitor_set.hpp"
#include "os/check.hpp"

#include <pinfold/range.hpp>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace pinfold::core {

class cache_monitors {
 public:
  struct selected {
    std::shared_ptr<const invalidation::monitor_set> set;  ///< asked before memory is registered; null for none
    bool keeps = false;                                    ///< whether any monitor reports memory that goes away
    std::string text;                                      ///< the monitors' names, or why there are none
    std::shared_ptr<void> hints{};                         ///< for the allocator, for as long as the cache exists
  };

  /// `strict`: requests wait until the monitors have reported all earlier events.
  cache_monitors(selected by, bool strict)
      : set_(std::move(by.set)),
        failures_before_(set_ ? set_->failures() : 0),
        changes_told_(set_ ? set_->changes() : 0),
        hints_(std::move(by.hints)),
        keeps_(by.keeps),
        strict_(strict && set_ != nullptr),
        text_(std::move(by.text)) {}

  /// Returns whether any monitor has to be asked.
  [[nodiscard]] bool any() const noexcept { return set_ != nullptr; }
  [[nodiscard]] bool keeps() const noexcept { return keeps_; }
  [[nodiscard]] bool strict() const noexcept { return strict_; }
  /// Returns the monitors' names when the cache was made, or why there were none.
  [[nodiscard]] const std::string& text() const noexcept { return text_; }
  /// Returns the same, or which monitors do not work any more. Throws `std::bad_alloc`.
  [[nodiscard]] std::string text_now() const;

  /// Waits until all earlier events are on the event log. Requires `strict`.
  void wait_for_events() const noexcept {
    PINFOLD_ASSERT(strict_, "only a strict cache waits");
    set_->wait_for_events();
  }
  /// Writes the kernel's events to the event log. Returns their number so far.
  [[nodiscard]] std::uint64_t drain() const noexcept { return any() ? set_->drain() : 0; }
  /// Returns the count of the kernel's events, for hits.
  [[nodiscard]] const std::atomic<std::uint64_t>& kernel_generation() const noexcept {
    return any() ? set_->kernel_generation() : invalidation::monitor_set::nothing_counted();
  }
  /// Returns whether the monitors report changes of files by other processes.
  [[nodiscard]] bool see_files() const noexcept { return !any() || set_->sees_files(); }

  /// Asks the monitors to watch `extent`, before the driver is called. Returns false if a monitor refused, after
  /// telling the sink. Tells the sink about changes of the monitors (R53). Called without a shard's mutex: a monitor
  /// may have to ask the kernel, or be restarted.
  [[nodiscard]] bool watch(const range& extent, reporter& to) noexcept { return !any() || is_watched(extent, to); }
  /// Returns how often monitors failed since the cache was made.
  [[nodiscard]] std::uint64_t failures() const noexcept { return any() ? set_->failures() - failures_before_ : 0; }

 private:
  [[nodiscard]] bool is_watched(const range& extent, reporter& to) noexcept;
  void tell_changes(reporter& to) noexcept;

  const std::shared_ptr<const invalidation::monitor_set> set_;
  const std::uint64_t failures_before_;
  std::atomic<std::uint64_t> changes_told_;
  const std::shared_ptr<void> hints_;
  const bool keeps_;
  const bool strict_;
  const std::string text_;
};

}  // namespace pinfold::core
