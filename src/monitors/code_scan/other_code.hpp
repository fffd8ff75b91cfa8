// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What the hooks need beside them where they are alone: no other code in the process that can take memory away (R54).
#pragma once

#include "monitors/code_scan/dangers.hpp"
#include "watch/board.hpp"
#include "watch/new_code.hpp"

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace pinfold::monitors::code_scan {

/// Looks through the code of the process, and again through what is new when the hooks have seen executable memory
/// appear. It posts no event of memory; the hooks invalidate what was kept when new code appears. Once it has found
/// such code that is for good: what was loaded may have made more.
///
/// The hooks have to be in place from before this is made until it is gone.
class other_code {
 public:
  /// Tells which code is known, whenever it looks. Looks at once. Throws `std::bad_alloc`.
  using known_source = known_code (*)();
  other_code(watch::board& board, known_source known);
  other_code(const other_code&) = delete;
  other_code& operator=(const other_code&) = delete;
  ~other_code();

  /// Whether there is none, before anything is kept. Any thread. One atomic load where nothing is new; else it reads
  /// /proc/self/maps and decodes what is new.
  [[nodiscard]] bool none() noexcept {
    if (!found() && looked_.load(std::memory_order_acquire) != watch::code_events.sum()) look();
    return !found();
  }

  /// Whether such code was found so far, and which, for people; null while none was.
  [[nodiscard]] bool found() const noexcept { return found_.load(std::memory_order_acquire); }
  [[nodiscard]] const char* text() const noexcept { return found() ? text_.data() : nullptr; }

 private:
  using regions = std::vector<code_region>;

  void look() noexcept;
  [[nodiscard]] std::string look_at_new(const regions& before, regions& now) const;
  void note(const std::string& text) noexcept;

  watch::board& board_;
  known_source known_;
  std::atomic<bool> found_{false};
  std::atomic<std::uint64_t> looked_{UINT64_MAX};  // `new_code::sum` of before the last look
  std::mutex mutex_;
  std::shared_ptr<const regions> clean_;  // guarded by mutex_
  std::uint64_t changed_ = 0;             // guarded by mutex_; `new_code::changed` of before that look
  std::array<char, 256> text_{};          // constant once `found_`
};

}  // namespace pinfold::monitors::code_scan
