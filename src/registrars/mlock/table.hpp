// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The pages of this process that are locked for registrations, and those that the program had locked before.
#pragma once

#include "registrars/mlock/ranges.hpp"

#include <cstdint>
#include <mutex>

namespace pinfold::mlocks {

/// The error of the kernel; nothing has changed then. `native` is an errno, or 0 if the kernel does not refuse.
struct refusal {
  int native = 0;
  bool over_limit = false;
};

/// Memory locks do not nest and belong to the process, so there is one count for all registrars. Thread-safe; one call
/// runs at a time, because counting and locking must happen together. Ranges are of whole pages.
class table {
 public:
  /// Returns this process's table; a child of fork(2), which inherits no locks, has another. Throws std::bad_alloc.
  [[nodiscard]] static table& here();
  /// If false, no other member may be called: a thread that the child does not have may hold the mutex.
  [[nodiscard]] bool is_of_this_process() const noexcept;

  /// Locks the pages. If it throws std::bad_alloc, nothing has changed.
  [[nodiscard]] refusal lock(const range& pages);

  /// Unlocks the pages that no other registration holds and that the program had not locked before. If the kernel
  /// refuses, returns an errno, and the pages still count as held. Requires an earlier `lock` of the same pages.
  [[nodiscard]] int unlock(const range& pages) noexcept;

 private:
  explicit table(std::uint64_t process) noexcept : process_(process) {}
  template <class Use>
  int for_each_to_unlock(const range& pages, Use&& use) const noexcept;
  void note_programs(const range& pages);
  void forget_programs(const range& pages) noexcept;

  const std::uint64_t process_;
  table* before_ = nullptr;  // the parent's table
  std::mutex mutex_;
  range_list held_;      // by registrations
  range_list programs_;  // already locked at their first registration
};

}  // namespace pinfold::mlocks
