// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The monitors of one cache, as its engine sees them.
#pragma once

#include "invalidation/monitor_set.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace pinfold::core {

/// The monitors to ask about memory before it is registered, null when none has to be asked; and whether any of them
/// reports memory that goes away.
struct watched_by {
  std::shared_ptr<const invalidation::monitor_set> set;
  bool keeps = false;
  std::string text;  ///< the monitors' names, or why there are none
  std::shared_ptr<void> hints{};
};

/// How far the event log and the kernel's events had come when a request read them.
struct happened {
  std::uint64_t on_event_log;
  std::uint64_t in_kernel;
};

}  // namespace pinfold::core
