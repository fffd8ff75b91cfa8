// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Second chance that knows what things cost.
#pragma once

#include "object_list.hpp"
#include "policy.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace tool {

/// One whose cost for a unit of room is n times the usual is spared n - 1 times more by the hand, `most_rounds` at
/// most: after it came, and after the hand found it used. Hits write what second chance writes; the rounds are the
/// hand's own. The usual is a mean over those who went lately.
class cost_clock : public policy {
 public:
  static constexpr std::uint8_t most_rounds = 7;

  explicit cost_clock(const workload& of)
      : objects_(of.objects), round_(objects_.size()), visited_(objects_.size()), rounds_(objects_.size()) {}

  void hit(object one) override { visited_[one] = true; }
  void insert(object one) override {
    visited_[one] = false;
    rounds_[one] = extra_rounds(one);
    round_.push_back(one);
  }
  object victim() override {
    for (;;) {
      const auto one = round_.pop_front();
      if (!visited_[one] && rounds_[one] == 0) {
        learn(objects_[one]);
        return one;
      }
      rounds_[one] = visited_[one] ? extra_rounds(one) : static_cast<std::uint8_t>(rounds_[one] - 1);
      visited_[one] = false;
      round_.push_back(one);
    }
  }

 private:
  static constexpr double newest_share = 1.0 / 64;

  [[nodiscard]] std::uint8_t extra_rounds(object one) const noexcept {
    if (usual_cost_ == 0) return 0;
    const double times = std::round(objects_[one].density() * usual_room_ / usual_cost_) - 1;
    return static_cast<std::uint8_t>(std::clamp<double>(times, 0, most_rounds));
  }
  // Cost and room each by itself: a mean of their ratios would be that of the many small ones.
  void learn(const replay_object& gone) noexcept {
    usual_cost_ += newest_share * (gone.cost() - usual_cost_);
    usual_room_ += newest_share * (static_cast<double>(gone.room) - usual_room_);
  }

  const std::vector<replay_object>& objects_;
  object_list round_;
  std::vector<bool> visited_;
  std::vector<std::uint8_t> rounds_;
  double usual_cost_ = 0;
  double usual_room_ = 0;
};

}  // namespace tool
