// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Eviction with knowledge of the future.
#pragma once

#include "trace/replay/policy.hpp"

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

namespace tool {

/// Evicts, of the few objects that are needed last, the one whose room is worth least until then. Where all objects are
/// alike this is Belady's MIN, and nothing can be better; otherwise it is a good estimate and not a bound.
class offline : public policy {
 public:
  explicit offline(const workload& of) : objects_(of.objects), uses_(objects_.size()), next_(objects_.size()) {
    for (std::size_t i = 0; i < of.requests.size(); ++i) uses_[of.requests[i]].push_back(i);
  }

  void hit(object one) override {
    by_need_.erase({needed_at(one), one});
    insert(one);
  }
  void insert(object one) override {
    now_ = uses_[one][next_[one]++];
    by_need_.insert({needed_at(one), one});
  }
  object victim() override {
    auto best = by_need_.rbegin();
    std::size_t seen = 0;
    for (auto one = best; one != by_need_.rend() && seen < looked_at; ++one, ++seen)
      if (worth(*one) < worth(*best)) best = one;
    const auto gone = best->second;
    by_need_.erase(*best);
    return gone;
  }

 private:
  using need = std::pair<std::size_t, object>;
  static constexpr std::size_t looked_at = 64;
  static constexpr std::size_t never = SIZE_MAX;

  [[nodiscard]] std::size_t needed_at(object one) const noexcept {
    return next_[one] < uses_[one].size() ? uses_[one][next_[one]] : never;
  }
  [[nodiscard]] double worth(const need& one) const noexcept {
    if (one.first == never) return 0;
    return objects_[one.second].density() / static_cast<double>(one.first - now_);
  }

  const std::vector<replay_object>& objects_;
  std::vector<std::vector<std::size_t>> uses_;
  std::vector<std::size_t> next_;
  std::set<need> by_need_;
  std::size_t now_ = 0;
};

}  // namespace tool
