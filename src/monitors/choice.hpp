// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Which monitors a cache relies on.
#pragma once

#include "watch/monitor_set.hpp"

#include <pinfold/options.hpp>

#include <memory>
#include <string>

namespace pinfold::monitors {

/// What was found for one cache.
struct chosen {
  bool keeps = false;  ///< whether somebody tells of memory that goes, so that registrations may be kept
  std::shared_ptr<const watch::monitor_set> set;  ///< null where nobody has to be asked about memory
  std::string why_not;                            ///< when nothing is kept
};

/// Any thread. Monitors are made when the first cache wants them, are shared, and go with the last cache. Throws
/// `std::bad_alloc`.
[[nodiscard]] chosen choose(monitor_choice wanted);

}  // namespace pinfold::monitors
