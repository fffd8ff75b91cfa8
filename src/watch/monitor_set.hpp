// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The monitors that one cache relies on.
#pragma once

#include "watch/monitor.hpp"

#include <memory>
#include <utility>
#include <vector>

namespace pinfold::watch {

/// Constant once made. Thread-safe as its members are.
class monitor_set {
 public:
  using members = std::vector<std::shared_ptr<monitor>>;

  explicit monitor_set(members all) noexcept : all_(std::move(all)) {}

  /// Whether one of them at least sees what happens to these pages. All are told of them.
  [[nodiscard]] bool watch(const range& pages) const noexcept {
    bool seen = false;
    for (const auto& one : all_)
      if (one->works() && one->watch(pages)) seen = true;
    return seen;
  }

  void settle() const noexcept {
    for (const auto& one : all_) one->settle();
  }

  [[nodiscard]] const members& all() const noexcept { return all_; }

 private:
  members all_;
};

}  // namespace pinfold::watch
