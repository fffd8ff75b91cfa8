// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Second chance, also called CLOCK: the cache's own policy.
#pragma once

#include "trace/replay/object_list.hpp"
#include "trace/replay/policy.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tool {

/// The hand goes round and spares each object that was used since its last pass. It chooses `most_marked` victims at a
/// time (a sixteenth of the cached objects, if that is less), since the cache pays for a barrier each time; victims
/// that are used again before their turn go back to the round's end.
class second_chance : public policy {
 public:
  static constexpr std::size_t most_marked = 64;  // as in the cache

  explicit second_chance(const workload& of)
      : round_(of.objects.size()), marked_(of.objects.size()), visited_(of.objects.size()) {}

  void hit(object one) override {
    visited_[one] = true;
    if (!marked_.holds(one)) return;
    marked_.remove(one);
    round_.push_back(one);
  }
  void insert(object one) override {
    visited_[one] = false;
    round_.push_back(one);
  }
  object victim() override {
    if (marked_.empty()) mark();
    return marked_.pop_front();
  }

 private:
  void mark() {
    const auto wanted = std::min(most_marked, 1 + round_.size() / 16);
    for (auto left = 2 * round_.size(); left > 0 && marked_.size() < wanted && !round_.empty(); --left) {
      const auto one = round_.pop_front();
      (visited_[one] ? round_ : marked_).push_back(one);
      visited_[one] = false;
    }
  }

  object_list round_;
  object_list marked_;
  std::vector<bool> visited_;
};

}  // namespace tool
