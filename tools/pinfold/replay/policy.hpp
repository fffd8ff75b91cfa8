// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Who goes when room is needed: what every eviction policy must answer.
#pragma once

#include "workload.hpp"

#include <cstdint>

namespace tool {

/// Knows what is cached, because it is told of everything that comes and hits, and chooses who goes. Objects are named
/// by their index in the workload, which outlives the policy.
class policy {
 public:
  using object = std::uint32_t;

  policy() = default;
  policy(const policy&) = delete;
  policy& operator=(const policy&) = delete;
  virtual ~policy() = default;

  /// A cached object was asked for.
  virtual void hit(object one) = 0;

  /// An object is cached from now on.
  virtual void insert(object one) = 0;

  /// The one that goes; it is not cached any more. Something is cached when this is called.
  [[nodiscard]] virtual object victim() = 0;
};

}  // namespace tool
