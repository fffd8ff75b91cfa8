// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The monitors of one cache, as its engine sees them.
#pragma once

#include "watch/monitor_set.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace pinfold::core {

/// The monitors that are asked about memory before it is registered, null where none has to be; and whether any of them
/// tells of memory that goes.
struct watched_by {
  std::shared_ptr<const watch::monitor_set> set;
  bool keeps = false;
  std::string text;  ///< which they are, or why there are none
  std::shared_ptr<void> hints{};
};

/// How far events had come when a request looked.
struct happened {
  std::uint64_t on_board;
  std::uint64_t in_kernel;
};

}  // namespace pinfold::core
