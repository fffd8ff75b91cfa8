// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Why an open failed, for the threads that waited for it.
#pragma once

#include "core/entry.hpp"

#include <pinfold/error.hpp>

namespace pinfold::core {

/// A thread that waits for another thread's open. The object lies on that thread's stack: entries have no room for
/// errors, which are rare. Guarded by the engine's mutex, as is its destruction.
class joiner {
 public:
  joiner(joiner*& all, const entry& on) noexcept : all_(all), on_(on), next_(all) { all = this; }
  ~joiner() {
    joiner** at = &all_;
    while (*at != this) at = &(*at)->next_;
    *at = next_;
  }
  joiner(const joiner&) = delete;
  joiner& operator=(const joiner&) = delete;

  static void tell(joiner* all, const entry& failed, const error& why) noexcept {
    for (joiner* one = all; one != nullptr; one = one->next_)
      if (&one->on_ == &failed) one->why_ = why;
  }

  /// Whether any thread still waits for the open of `on`.
  [[nodiscard]] static bool waits(const joiner* all, const entry& on) noexcept {
    while (all != nullptr && &all->on_ != &on) all = all->next_;
    return all != nullptr;
  }

  /// Returns why the open failed. Requires that it has.
  [[nodiscard]] const error& why() const noexcept { return why_; }

 private:
  joiner*& all_;
  const entry& on_;
  joiner* next_;
  error why_{};
};

}  // namespace pinfold::core
