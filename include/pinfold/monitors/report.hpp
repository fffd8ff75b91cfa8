// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A report of the monitors in this process, on this host.
#pragma once

#include <pinfold/export.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace pinfold {

/// One monitor.
struct monitor_report {
  std::string name;     ///< as in `monitor_choice`
  bool proven = false;  ///< sees what it claims to, in this process
  std::string why_not;  ///< why it is not proven
};

/// One kind of event on memory, and the monitors that see it.
struct hazard_report {
  /// The effect of the event on this host.
  enum class outcome : std::uint8_t {
    unknown_here,  ///< cannot be done on this host
    kept,          ///< harmless here: this process's allocator returns no memory to the system
    gone,          ///< happens: without a monitor, a cache has stale registrations
  };
  std::string event;                     ///< in words, such as `munmap`
  outcome what = outcome::unknown_here;  ///< what it does here
  std::vector<std::string> covered_by;   ///< names of monitors; empty: only the application itself can announce it
};

/// All monitors, and all kinds of events.
struct monitors_report {
  std::vector<monitor_report> monitors;  ///< one for each monitor
  std::vector<hazard_report> hazards;    ///< one for each kind of event
  std::string automatic;                 ///< the monitors that `monitor_choice::automatic` selects
};

/// Causes every hazard for real, on memory of its own, and checks which monitors see it. Takes some ten milliseconds,
/// and up to 1 GiB of address space. Any thread. Throws `std::bad_alloc`.
[[nodiscard]] PINFOLD_EXPORT monitors_report report_monitors();

}  // namespace pinfold
