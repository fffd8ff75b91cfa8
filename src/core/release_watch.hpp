// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Announces that a thread waits for releases.
#pragma once

#include "core/change_signal.hpp"
#include "os/check.hpp"

#include <pinfold/detail/hit.hpp>

#include <atomic>

namespace pinfold::core {

/// The announcement of one thread that waits for changes in its cache, releases among them. While a watch exists that
/// has `begun`, every release in the process is finished, and so wakes the threads that wait.
class release_watch {
 public:
  explicit release_watch(change_signal& changes) noexcept : changes_(changes) {}
  ~release_watch() {
    if (!begun_) return;
    PINFOLD_ASSERT(detail::releases_awaited.load(std::memory_order_relaxed) > 0, "a thread that waits is counted");
    detail::releases_awaited.fetch_sub(1, std::memory_order_seq_cst);
  }
  release_watch(const release_watch&) = delete;
  release_watch& operator=(const release_watch&) = delete;

  [[nodiscard]] bool begun() const noexcept { return begun_; }
  /// Announces the wait. Before it waits, the thread has to pass a barrier and check its condition again.
  void begin() noexcept {
    PINFOLD_ASSERT(!begun_, "a thread announces itself once");
    begun_ = true;
    detail::releases_awaited.fetch_add(1, std::memory_order_seq_cst);
  }
  /// Returns the waiter, which waits for changes other than releases, too.
  [[nodiscard]] change_signal::waiter& changes() noexcept { return changes_; }

 private:
  change_signal::waiter changes_;
  bool begun_ = false;
};

}  // namespace pinfold::core
