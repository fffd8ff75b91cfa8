// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The monitors that one cache relies on. Constant once made. Thread-safe.
#pragma once

#include "invalidation/monitor.hpp"
#include "os/check.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace pinfold::invalidation {

class monitor_set {
 public:
  using members = std::vector<std::shared_ptr<monitor>>;

  explicit monitor_set(members all) noexcept : all_(std::move(all)) {
    PINFOLD_ASSERT(std::find(all_.begin(), all_.end(), nullptr) == all_.end(), "each member of a set is a monitor");
  }

  /// Makes every monitor watch these pages. Succeeds if every monitor works and can watch them; otherwise returns the
  /// first error. Restarts failed monitors, as `monitor::ensure_works` does.
  [[nodiscard]] result<void> watch(const range& pages) const noexcept {
    result<void> all;
    for (const auto& one : all_) {
      auto watched = one->ensure_works() ? one->watch(pages) : fail(errc::closed, one->why_not());
      if (all && !watched) all = watched;
    }
    return all;
  }

  /// Returns a number that stays the same as long as no monitor fails and none recovers.
  [[nodiscard]] std::uint64_t changes() const noexcept {
    std::uint64_t sum = 0;
    for (const auto& one : all_) sum += one->failures() + one->recoveries();
    return sum;
  }
  [[nodiscard]] std::uint64_t failures() const noexcept {
    std::uint64_t sum = 0;
    for (const auto& one : all_) sum += one->failures();
    return sum;
  }

  /// Returns a text for people: which monitors do not work now, and why; empty if all work. Allocates.
  [[nodiscard]] std::string not_working() const {
    std::string text;
    for (const auto& one : all_)
      if (!one->works()) text += (text.empty() ? "" : "; ") + std::string(one->name()) + ": " + one->why_not();
    return text;
  }

  void wait_for_events() const noexcept {
    for (const auto& one : all_) one->wait_for_events();
  }

  [[nodiscard]] bool sees_files() const noexcept {
    return std::any_of(all_.begin(), all_.end(), [](const auto& one) { return one->sees_files() && one->works(); });
  }

  /// Returns the word that the kernel counts for one of the monitors; without such a monitor, a word that is always 0.
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

}  // namespace pinfold::invalidation
