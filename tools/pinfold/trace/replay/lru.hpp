// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// True least recently used.
#pragma once

#include "trace/replay/object_list.hpp"
#include "trace/replay/policy.hpp"

namespace tool {

/// The reference for all others. A cache would have to write at every hit, in memory that threads share.
class lru : public policy {
 public:
  explicit lru(const workload& of) : order_(of.objects.size()) {}
  void hit(object one) override {
    order_.remove(one);
    order_.push_back(one);
  }
  void insert(object one) override { order_.push_back(one); }
  object victim() override { return order_.pop_front(); }

 private:
  object_list order_;
};

}  // namespace tool
