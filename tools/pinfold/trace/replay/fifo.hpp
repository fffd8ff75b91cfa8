// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// First in, first out.
#pragma once

#include "trace/replay/object_list.hpp"
#include "trace/replay/policy.hpp"

namespace tool {

/// Ignores hits.
class fifo : public policy {
 public:
  explicit fifo(const workload& of) : order_(of.objects.size()) {}
  void hit(object /*one*/) override {}
  void insert(object one) override { order_.push_back(one); }
  object victim() override { return order_.pop_front(); }

 private:
  object_list order_;
};

}  // namespace tool
