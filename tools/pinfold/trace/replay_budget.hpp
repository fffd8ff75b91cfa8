// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The budget of a replayed cache, as users write it.
#pragma once

#include "trace/replay/workload.hpp"

#include <cstddef>
#include <string>

namespace tool {

struct replay_budget {
  std::string text;         ///< as shown
  bool in_entries = false;  ///< else in bytes
  std::size_t room = 0;
};

/// Parses `25%` of the workload's footprint; `64M`; or a plain number of registrations. Throws `usage_failure`.
[[nodiscard]] replay_budget budget_for(const std::string& text, const workload& of);

}  // namespace tool
