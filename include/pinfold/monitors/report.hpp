// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What the monitors can do in this process, on this host.
#pragma once

#include <pinfold/export.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace pinfold {

/// One monitor.
struct monitor_report {
  std::string name;
  bool proven = false;  ///< sees what it claims to, in this process
  std::string why_not;  ///< when it does not
};

/// One thing that happens to memory, and who sees it.
struct hazard_report {
  enum class outcome : std::uint8_t {
    unknown_here,  ///< cannot be done on this host
    kept,          ///< harmless here: this process's allocator gives nothing back
    gone,          ///< happens, and whoever is not told of it has stale registrations
  };
  std::string event;
  outcome what = outcome::unknown_here;
  std::vector<std::string> covered_by;  ///< names of monitors; empty: nobody but the application itself
};

struct monitors_report {
  std::vector<monitor_report> monitors;
  std::vector<hazard_report> hazards;
  std::string automatic;  ///< what `monitor_choice::automatic` takes
};

/// Does every hazard for real, on memory of its own, and looks who notices. Takes some ten milliseconds, and up to 1
/// GiB of addresses. Any thread. Throws `std::bad_alloc`.
[[nodiscard]] PINFOLD_EXPORT monitors_report report_monitors();

}  // namespace pinfold
