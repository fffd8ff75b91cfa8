// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Which monitors a cache relies on: those that were asked for, and have shown that they see what they claim to (R33).
#pragma once

#include "monitors/probe.hpp"
#include "watch/monitor_set.hpp"

#include <pinfold/options.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace pinfold::monitors {

/// A kind of monitor that there is.
struct kind {
  monitor_choice choice;
  watch::source source;
  const char* name;
  bool by_default;  ///< whether it is among those of `monitor_choice::automatic`
  result<std::unique_ptr<watch::monitor>> (*make)(watch::board&, watch::watched_memory&);
  void (*prepare)();  ///< what has to be done before with no lock held; may be null
};
[[nodiscard]] std::span<const kind> all_kinds() noexcept;

/// A monitor that has proved itself, or why there is none.
struct proven {
  std::shared_ptr<watch::monitor> monitor;
  std::string why_not;
};

/// Made when the first cache wants it, shared by all, and gone with the last. The proof is made once in a process; it
/// takes some milliseconds. Any thread.
[[nodiscard]] proven find(const kind& wanted);

/// What was found for one cache.
struct chosen {
  bool keeps = false;  ///< whether somebody tells of memory that goes, so that registrations may be kept
  std::shared_ptr<const watch::monitor_set> set;  ///< null where nobody has to be asked about memory
  std::string text;                               ///< for people: who they are, or why there are none
  std::shared_ptr<void> hints;                    ///< to the allocator, as long as it lives
  bool strict = false;                            ///< exact only when it is asked before every look-up
};

/// Any thread. Throws `std::bad_alloc`.
[[nodiscard]] chosen choose(monitor_choice wanted, bool with_hints = false);

}  // namespace pinfold::monitors
