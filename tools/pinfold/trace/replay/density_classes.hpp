// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Lazy GreedyDual-Size without a heap: one queue for each power of two of cost for a unit of room.
#pragma once

#include "trace/replay/object_list.hpp"
#include "trace/replay/policy.hpp"
#include "trace/replay/second_chance.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <deque>
#include <vector>

namespace tool {

/// GreedyDual-Size that writes one bit at a hit, and reads it when it comes to an object. Costs per unit of room are
/// rounded to powers of two, with a queue for each. An object that enters a queue later has the higher value there, so
/// the least of all values is at a queue's front. An object that is found used moves up a queue, at most `most_steps`
/// above its own: each step doubles its worth, so that frequencies count up to 2 by default. Hits write what second
/// chance writes, and as many victims are chosen at a time.
class density_classes : public policy {
 public:
  explicit density_classes(const workload& of, unsigned most_steps = 1)
      : objects_(of.objects),
        most_steps_(most_steps),
        marked_(objects_.size()),
        visited_(objects_.size()),
        steps_(objects_.size()) {}

  void hit(object one) override {
    visited_[one] = true;
    if (!marked_.holds(one)) return;
    marked_.remove(one);
    put(one);
  }
  void insert(object one) override {
    visited_[one] = false;
    steps_[one] = 0;
    put(one);
  }
  object victim() override {
    if (marked_.empty()) mark();
    return marked_.pop_front();
  }

 private:
  struct queued {
    double value;
    object one;
  };
  static constexpr int lowest = -24;  // 2^-24 ns a byte: 4 us for 64 TiB
  static constexpr std::size_t classes = 64;

  [[nodiscard]] std::size_t class_of(object one) const noexcept {
    const auto density = objects_[one].density();
    const int power = density > 0 ? static_cast<int>(std::lround(std::log2(density))) : lowest;
    const auto own = static_cast<unsigned>(std::max(power - lowest, 0));
    return std::min<std::size_t>(own + steps_[one], classes - 1);
  }
  void put(object one) {
    const auto place = class_of(one);
    queues_[place].push_back({floor_ + std::ldexp(1.0, static_cast<int>(place) + lowest), one});
    ++waiting_;
  }
  object pop_least() {
    const auto least = std::min_element(queues_.begin(), queues_.end(), [](const auto& a, const auto& b) {
      return !a.empty() && (b.empty() || a.front().value < b.front().value);
    });
    const auto [value, one] = least->front();
    least->pop_front();
    --waiting_;
    floor_ = value;
    return one;
  }
  void mark() {
    const auto wanted = std::min(second_chance::most_marked, 1 + waiting_ / 16);
    while (marked_.size() < wanted && waiting_ > 0) {
      const auto one = pop_least();
      if (!visited_[one]) {
        marked_.push_back(one);
        continue;
      }
      visited_[one] = false;
      steps_[one] = std::min(steps_[one] + 1, most_steps_);
      put(one);
    }
  }

  const std::vector<replay_object>& objects_;
  unsigned most_steps_;
  std::array<std::deque<queued>, classes> queues_;
  object_list marked_;
  std::vector<bool> visited_;
  std::vector<unsigned> steps_;
  std::size_t waiting_ = 0;
  double floor_ = 0;
};

}  // namespace tool
