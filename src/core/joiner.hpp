// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Why an open failed, for those who waited for it.
#pragma once

#include "core/entry.hpp"

#include <pinfold/error.hpp>

namespace pinfold::core {

/// On the stack of a thread that waits for another one's open: entries have no room for errors that hardly ever are.
/// Guarded by the engine's mutex, also its end.
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

  /// Whether any thread still waits for it.
  [[nodiscard]] static bool waits(const joiner* all, const entry& on) noexcept {
    while (all != nullptr && &all->on_ != &on) all = all->next_;
    return all != nullptr;
  }

  /// Only when the open has failed.
  [[nodiscard]] const error& why() const noexcept { return why_; }

 private:
  joiner*& all_;
  const entry& on_;
  joiner* next_;
  error why_{};
};

}  // namespace pinfold::core
