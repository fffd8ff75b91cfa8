// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// GreedyDual-Size whose hits write only what second chance writes.
#pragma once

#include "trace/replay/policy.hpp"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace tool {

/// Evicts the object of the least value, unless it was used since it got that value: then it gets a new one, above that
/// of the object evicted last. The value counts the cost per unit of room as often as the object was found used, at
/// most `most_uses` times, so that formerly popular objects do not stay for ever.
class lazy_greedy_dual : public policy {
 public:
  lazy_greedy_dual(const workload& of, unsigned most_uses)
      : objects_(of.objects), most_uses_(most_uses), visited_(objects_.size()), uses_(objects_.size()) {}

  void hit(object one) override { visited_[one] = true; }
  void insert(object one) override {
    visited_[one] = false;
    uses_[one] = 1;
    put(one);
  }
  object victim() override {
    for (;;) {
      const auto [value, one] = *by_value_.begin();
      by_value_.erase(by_value_.begin());
      floor_ = value;
      if (!visited_[one]) return one;
      visited_[one] = false;
      uses_[one] = std::min(uses_[one] + 1, most_uses_);
      put(one);
    }
  }

 private:
  void put(object one) { by_value_.insert({floor_ + uses_[one] * objects_[one].density(), one}); }

  const std::vector<replay_object>& objects_;
  unsigned most_uses_;
  std::vector<bool> visited_;
  std::vector<unsigned> uses_;
  std::set<std::pair<double, object>> by_value_;
  double floor_ = 0;
};

}  // namespace tool
