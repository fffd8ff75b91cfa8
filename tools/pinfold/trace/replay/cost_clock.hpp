// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Second chance with costs.
#pragma once

#include "trace/replay/object_list.hpp"
#include "trace/replay/policy.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace tool {

/// Second chance with extra rounds. An object whose cost per unit of room is n times the usual one survives n - 1 more
/// passes of the hand, at most `most_rounds`: after its insertion, and after each pass that found it used. Hits write
/// only what second chance writes; the hand counts the rounds. The usual cost is a moving mean over evicted objects.
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
  // Averages cost and room separately: a mean of their ratios would be dominated by the many small objects.
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
