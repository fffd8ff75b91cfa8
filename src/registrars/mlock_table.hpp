// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Which pages of this process are locked for registrations, and which the program had locked before.
#pragma once

#include "registrars/mlock_ranges.hpp"

#include <mutex>
#include <sys/types.h>

namespace pinfold::mlocks {

[[nodiscard]] std::uintptr_t page_bytes() noexcept;

/// Why the kernel refuses, and nothing changed. `native` is an errno, 0 when it does not refuse.
struct refusal {
  int native = 0;
  bool over_limit = false;
};

/// Memory locks do not nest, and are the process's: one count for all registrars. Thread-safe; calls follow one
/// another, as counting and locking must not be torn apart. Ranges are of whole pages.
class table {
 public:
  /// This process's; a child of fork(2), which inherits no locks, has another. Throws std::bad_alloc.
  [[nodiscard]] static table& here();
  /// Otherwise nothing else may be called: its mutex may be held by a thread that is not in the child.
  [[nodiscard]] bool is_of_this_process() const noexcept;

  /// Locks them. Throws std::bad_alloc, and nothing changed.
  [[nodiscard]] refusal lock(const range& pages);

  /// Unlocks what of them no other registration holds, and the program had not locked before. An errno, and they still
  /// count as held, if the kernel refuses. Requires that `lock` was called for them.
  [[nodiscard]] int unlock(const range& pages) noexcept;

 private:
  explicit table(pid_t process) noexcept : process_(process) {}
  template <class Use>
  int for_each_to_unlock(const range& pages, Use&& use) const noexcept;
  void note_programs(const range& pages);
  void forget_programs(const range& pages) noexcept;

  const pid_t process_;
  table* before_ = nullptr;  // of the parent
  std::mutex mutex_;
  range_list held_;      // by registrations
  range_list programs_;  // locked when a registration came to them first, and nothing else held them
};

}  // namespace pinfold::mlocks
