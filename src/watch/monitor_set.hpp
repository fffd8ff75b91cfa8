// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The monitors that one cache relies on.
#pragma once

#include "watch/monitor.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
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
      if (one->watch(pages)) seen = true;
    return seen;
  }

  void settle() const noexcept {
    for (const auto& one : all_) one->settle();
  }

  [[nodiscard]] bool sees_files() const noexcept {
    return std::any_of(all_.begin(), all_.end(), [](const auto& one) { return one->sees_files() && one->works(); });
  }

  /// What the kernel counts for one of them; a word that is always 0 when there is none such.
  [[nodiscard]] const std::atomic<std::uint64_t>& kernel_generation() const noexcept {
    for (const auto& one : all_)
      if (const auto* counted = one->kernel_generation()) return *counted;
    return nothing_counted();
  }
  [[nodiscard]] std::uint64_t drain() const noexcept {
    std::uint64_t done = 0;
    for (const auto& one : all_) done += one->drain();
    return done;
  }
  [[nodiscard]] static const std::atomic<std::uint64_t>& nothing_counted() noexcept {
    static constinit const std::atomic<std::uint64_t> nothing{0};
    return nothing;
  }

  [[nodiscard]] const members& all() const noexcept { return all_; }

 private:
  members all_;
};

}  // namespace pinfold::watch
