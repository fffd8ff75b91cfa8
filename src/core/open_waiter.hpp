// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Why an open failed, for the threads that waited for it.
#pragma once

#include "index/entry.hpp"
#include "os/check.hpp"

#include <pinfold/error.hpp>

namespace pinfold::core {

/// A thread that waits for another thread's open. The object lies on that thread's stack: entries have no room for
/// errors, which are rare. Guarded by the shard's mutex, as is its destruction.
class open_waiter {
 public:
  open_waiter(open_waiter*& all, const index::entry& on) noexcept : all_(all), on_(on), next_(all) { all = this; }
  ~open_waiter() {
    open_waiter** at = &all_;
    while (*at != this) {
      PINFOLD_ASSERT(*at != nullptr, "a thread that waits is listed");
      at = &(*at)->next_;
    }
    *at = next_;
  }
  open_waiter(const open_waiter&) = delete;
  open_waiter& operator=(const open_waiter&) = delete;

  /// `outdated`: a registration was closed since the driver was asked, perhaps before a waiter's request, so that the
  /// driver might answer differently now.
  static void tell(open_waiter* all, const index::entry& failed, const error& why, bool outdated) noexcept {
    for (open_waiter* one = all; one != nullptr; one = one->next_) {
      if (&one->on_ != &failed) continue;
      one->why_ = why;
      one->outdated_ = outdated;
    }
  }

  /// Returns whether any thread still waits for the open of `on`.
  [[nodiscard]] static bool waits(const open_waiter* all, const index::entry& on) noexcept {
    while (all != nullptr && &all->on_ != &on) all = all->next_;
    return all != nullptr;
  }

  /// Returns why the open failed. Requires that it has.
  [[nodiscard]] const error& why() const noexcept { return why_; }
  [[nodiscard]] bool outdated() const noexcept { return outdated_; }

 private:
  open_waiter*& all_;
  const index::entry& on_;
  open_waiter* next_;
  error why_{};
  bool outdated_ = false;
};

}  // namespace pinfold::core
