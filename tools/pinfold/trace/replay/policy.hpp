// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The interface of every eviction policy, which is the choice of the next victim, and all of them by name.
#pragma once

#include "trace/replay/workload.hpp"

#include <cstdint>
#include <memory>
#include <span>

namespace tool {

/// An eviction policy. It is told of every insertion and hit, and so knows what is cached. Objects are named by their
/// index in the workload, which outlives the policy.
class policy {
 public:
  using object = std::uint32_t;

  policy() = default;
  policy(const policy&) = delete;
  policy& operator=(const policy&) = delete;
  virtual ~policy() = default;

  /// Tells of a request for a cached object.
  virtual void hit(object one) = 0;

  /// Tells that an object is cached from now on.
  virtual void insert(object one) = 0;

  /// Returns the object to evict, and removes it. At least one object must be cached.
  [[nodiscard]] virtual object victim() = 0;
};

struct known_policy {
  const char* name;
  const char* what;
  std::unique_ptr<policy> (*make)(const workload& of);
};

/// Returns all policies. The first is true LRU, with which the others are compared; `second-chance` is the cache's own.
[[nodiscard]] std::span<const known_policy> all_policies() noexcept;

}  // namespace tool
