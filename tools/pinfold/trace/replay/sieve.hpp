// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// SIEVE (Zhang and others, NSDI 2024): a queue that keeps its order, and a hand that goes from the oldest to the
/// newest.
#pragma once

#include "trace/replay/object_list.hpp"
#include "trace/replay/policy.hpp"

#include <vector>

namespace tool {

/// Unlike in second chance, a survivor stays in its place, so that the hand meets new objects soon.
class sieve : public policy {
 public:
  explicit sieve(const workload& of) : by_age_(of.objects.size()), visited_(of.objects.size()) {}
  void hit(object one) override { visited_[one] = true; }
  void insert(object one) override {
    visited_[one] = false;
    by_age_.push_back(one);
  }
  object victim() override {
    auto one = hand_ == object_list::none ? by_age_.front() : hand_;
    while (visited_[one]) {
      visited_[one] = false;
      one = by_age_.after(one);
      if (one == object_list::none) one = by_age_.front();
    }
    hand_ = by_age_.after(one);
    by_age_.remove(one);
    return one;
  }

 private:
  object_list by_age_;
  std::vector<bool> visited_;
  object hand_ = object_list::none;
};

}  // namespace tool
