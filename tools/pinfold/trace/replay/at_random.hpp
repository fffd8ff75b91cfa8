// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Random eviction.
#pragma once

#include "trace/replay/policy.hpp"

#include <random>
#include <vector>

namespace tool {

/// Evicts a random object: the same ones in every run.
class at_random : public policy {
 public:
  explicit at_random(const workload& /*of*/) {}
  void hit(object /*one*/) override {}
  void insert(object one) override { cached_.push_back(one); }
  object victim() override {
    auto& chosen = cached_[generator_() % cached_.size()];
    const auto gone = chosen;
    chosen = cached_.back();
    cached_.pop_back();
    return gone;
  }

 private:
  std::mt19937_64 generator_{1};  // NOLINT(bugprone-random-generator-seed): figures have to be the same again
  std::vector<object> cached_;
};

}  // namespace tool
