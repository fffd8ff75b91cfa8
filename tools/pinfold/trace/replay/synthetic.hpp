// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Synthetic workloads: the same for the same seed, on any machine.
#pragma once

#include "trace/replay/cost_model.hpp"
#include "trace/replay/workload.hpp"

#include <cstdint>
#include <span>

namespace tool {

struct synthetic_workload {
  const char* name;
  const char* what;
  workload (*make)(const cost_model& costs, std::uint64_t seed);
};

[[nodiscard]] std::span<const synthetic_workload> all_synthetic() noexcept;

}  // namespace tool
