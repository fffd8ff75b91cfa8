// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// GreedyDual-Size (Cao and Irani, 1997), and with frequencies (GDSF; Cherkasova, 1998).
#pragma once

#include "trace/replay/policy.hpp"

#include <set>
#include <utility>
#include <vector>

namespace tool {

/// Each object has a value: its cost per unit of room, plus the value of the object evicted last. Evicts the object of
/// the least value. With frequencies, the cost is multiplied by the object's requests since its insertion. Writes at
/// every hit, like LRU.
class greedy_dual : public policy {
 public:
  greedy_dual(const workload& of, bool frequencies)
      : objects_(of.objects), frequencies_(frequencies), value_(objects_.size()), uses_(objects_.size()) {}

  void hit(object one) override {
    by_value_.erase({value_[one], one});
    uses_[one] += frequencies_ ? 1 : 0;
    put(one);
  }
  void insert(object one) override {
    uses_[one] = 1;
    put(one);
  }
  object victim() override {
    const auto [value, one] = *by_value_.begin();
    by_value_.erase(by_value_.begin());
    floor_ = value;
    return one;
  }

 private:
  void put(object one) {
    value_[one] = floor_ + uses_[one] * objects_[one].density();
    by_value_.insert({value_[one], one});
  }

  const std::vector<replay_object>& objects_;
  bool frequencies_;
  std::vector<double> value_;
  std::vector<double> uses_;
  std::set<std::pair<double, object>> by_value_;
  double floor_ = 0;
};

}  // namespace tool
