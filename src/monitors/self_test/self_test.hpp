// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Causes real events that take memory away, and finds which monitors see them: the self-test of the monitors (R33),
/// and the data for `pinfold info`.
#pragma once

#include "invalidation/early_unregister.hpp"
#include "invalidation/event_log.hpp"
#include "invalidation/monitor_set.hpp"
#include "invalidation/registered_filter.hpp"

#include <pinfold/error.hpp>
#include <pinfold/range.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace pinfold::monitors {

/// A set of `invalidation::source`.
using sources = std::uint32_t;
[[nodiscard]] constexpr sources only(invalidation::source one) noexcept {
  return sources{1} << static_cast<unsigned>(one);
}

/// The result of one event.
enum class outcome : std::uint8_t {
  unknown_here,  ///< this kernel or process has no such event
  kept,          ///< the memory is unchanged: the allocator gave nothing back
  gone,          ///< the memory is gone, or was emptied
};

/// Memory that counts as registered for the monitors until the probe ends. Until then, no hook removes it from
/// userfaultfd, so that each monitor sees all that it can.
class registered_memory {
 public:
  registered_memory(const invalidation::monitor_set& watched_by, const range& memory) noexcept;
  ~registered_memory();
  registered_memory(const registered_memory&) = delete;
  registered_memory& operator=(const registered_memory&) = delete;

  /// Returns the monitors that have reported any of this memory since this object was made.
  [[nodiscard]] sources seen_by() const noexcept;

  /// Returns false if the monitors refused this memory, for example because another userfaultfd watches it.
  /// Registrations of such memory are not kept, and events on it prove nothing.
  [[nodiscard]] bool is_watched() const noexcept { return watched_; }

 private:
  invalidation::no_early_unregister each_for_itself_;
  const invalidation::monitor_set& watched_by_;
  range memory_;
  bool noted_;
  bool watched_ = false;
  std::uint64_t cursor_;
};

struct probe {
  const char* event;   ///< for people: `munmap`, `free of 64 MiB`
  sources claimed_by;  ///< the monitors that must see the event
  /// Causes the event on watched memory of its own. Sets `seen` to the monitors that saw it. Leaves nothing behind.
  outcome (*run)(const invalidation::monitor_set& watched_by, sources& seen) noexcept;
};

// In both lists: for any thread; each probe takes about a millisecond.
[[nodiscard]] std::span<const probe> system_calls() noexcept;
[[nodiscard]] outcome free_of_64_mebibytes(const invalidation::monitor_set& watched_by, sources& seen) noexcept;
[[nodiscard]] std::span<const probe> allocator_habits() noexcept;  ///< of this process's `malloc`

}  // namespace pinfold::monitors
