// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Selects the monitors that a cache relies on: those that were requested and have proved that they see what they claim
/// (R33).
#pragma once

#include "invalidation/monitor_set.hpp"
#include "monitors/self_test/self_test.hpp"

#include <pinfold/options.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace pinfold::monitors {

struct kind {
  monitor_choice choice;
  invalidation::source source;
  const char* name;
  bool by_default;  ///< whether it is part of `monitor_choice::automatic`
  result<std::unique_ptr<invalidation::monitor>> (*make)(invalidation::event_log&, invalidation::registered_filter&);
  void (*prepare)();  ///< called first, with no lock held; may be null
};
[[nodiscard]] std::span<const kind> all_kinds() noexcept;

/// A monitor that has proved itself, or why there is none.
struct proven {
  std::shared_ptr<invalidation::monitor> monitor;
  std::string why_not;
};

/// Returns the monitor, made for the first cache that needs it, shared by all, and destroyed with the last. The proof
/// runs once in a process and takes some milliseconds. For any thread.
[[nodiscard]] proven find(const kind& wanted);

/// The selection for one cache.
struct chosen {
  bool keeps = false;  ///< whether a monitor reports memory that goes away, so that registrations may be kept
  std::shared_ptr<const invalidation::monitor_set> set;  ///< null if no monitor needs a call of `watch`
  std::string text;                                      ///< for people: the monitors' names, or why there are none
  std::shared_ptr<void> hints;                           ///< the allocator's hints, undone with the last reference
  bool strict = false;                                   ///< exact only if the monitor is called before every look-up
};

/// Selects the monitors for a cache. For any thread. Throws `std::bad_alloc`.
[[nodiscard]] chosen choose(monitor_choice wanted, bool with_hints = false);

}  // namespace pinfold::monitors
