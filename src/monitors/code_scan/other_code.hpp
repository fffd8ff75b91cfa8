// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Checks the assumption of using the hooks alone: that no other code in the process can take memory away (R54).
#pragma once

#include "invalidation/event_log.hpp"
#include "invalidation/new_code.hpp"
#include "monitors/code_scan/dangers.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace pinfold::monitors::code_scan {

/// Scans the code of the process, and scans new code after the hooks have seen executable memory appear. Posts no event
/// of memory; the hooks invalidate the kept registrations when new code appears. Such code, once found, counts for
/// ever: it may have made more.
///
/// The hooks must be in place for the whole life of this object.
class other_code {
 public:
  /// Returns the known code at each scan. The constructor scans at once. Throws `std::bad_alloc`.
  using known_source = known_code (*)();
  other_code(invalidation::event_log& event_log, known_source known);
  other_code(const other_code&) = delete;
  other_code& operator=(const other_code&) = delete;
  ~other_code();

  /// Returns whether no such code was found. Called before an entry is kept, on any thread. Costs one atomic load if no
  /// code is new; otherwise reads the list of mappings and decodes the new code.
  [[nodiscard]] bool none() noexcept {
    if (!found() && looked_.load(std::memory_order_acquire) != invalidation::code_events.sum()) look();
    return !found();
  }

  /// Return whether such code was found so far, and its description for people; null if none was found.
  [[nodiscard]] bool found() const noexcept { return found_.load(std::memory_order_acquire); }
  [[nodiscard]] const char* text() const noexcept { return found() ? text_.data() : nullptr; }

 private:
  using regions = std::vector<code_region>;

  void look() noexcept;
  [[nodiscard]] std::string look_at_new(const regions& before, regions& now) const;
  void note(const std::string& text) noexcept;

  invalidation::event_log& event_log_;
  known_source known_;
  std::atomic<bool> found_{false};
  std::atomic<std::uint64_t> looked_{UINT64_MAX};  // `new_code::sum` before the last scan
  std::mutex mutex_;
  std::shared_ptr<const regions> clean_;  // guarded by mutex_
  std::uint64_t changed_ = 0;             // guarded by mutex_; `new_code::changed` before that scan
  std::array<char, 256> text_{};          // constant once `found_`
};

}  // namespace pinfold::monitors::code_scan
