// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// All policies, by name.
#pragma once

#include "trace/replay/policy.hpp"

#include <memory>
#include <span>

namespace tool {

struct known_policy {
  const char* name;
  const char* what;
  std::unique_ptr<policy> (*make)(const workload& of);
};

/// Returns all policies. The first is true LRU, with which the others are compared; `second-chance` is the cache's own.
[[nodiscard]] std::span<const known_policy> all_policies() noexcept;

}  // namespace tool
