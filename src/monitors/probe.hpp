// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Things that happen to memory, done for real, to see who notices: the self-test of the monitors (R33), and what
/// `pinfold info` shows.
#pragma once

#include "watch/board.hpp"
#include "watch/leaving.hpp"
#include "watch/monitor_set.hpp"
#include "watch/watched_memory.hpp"

#include <pinfold/error.hpp>
#include <pinfold/range.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace pinfold::monitors {

/// A set of `watch::source`.
using sources = std::uint32_t;
[[nodiscard]] constexpr sources only(watch::source one) noexcept { return sources{1} << static_cast<unsigned>(one); }

/// What came of it.
enum class outcome : std::uint8_t {
  unknown_here,  ///< this kernel or process does not know such an event
  kept,          ///< the memory stayed as it was: an allocator that gives nothing back
  gone,          ///< the memory is gone, or was emptied
};

/// Memory that is registered, as far as the monitors know, until the probe ends. Meanwhile no hook keeps userfaultfd
/// from seeing what it could.
class bait {
 public:
  bait(const watch::monitor_set& watched_by, const range& memory) noexcept;
  ~bait();
  bait(const bait&) = delete;
  bait& operator=(const bait&) = delete;

  /// Who has said since this was made that any of it is going.
  [[nodiscard]] sources seen_by() const noexcept;

  /// Returns false where the monitors refused this memory: where another userfaultfd has it, for one. Registrations of
  /// it are not kept, and what happens to it proves nothing.
  [[nodiscard]] bool is_watched() const noexcept { return watched_; }

 private:
  watch::all_stay each_for_itself_;
  const watch::monitor_set& watched_by_;
  range memory_;
  bool noted_;
  bool watched_ = false;
  std::uint64_t cursor_;
};

/// One event.
struct probe {
  const char* event;   ///< for people: `munmap`, `free of 64 MiB`
  sources claimed_by;  ///< who has to see it when it happens
  /// Does it to memory of its own, and has it watched while it happens. `seen` is who noticed. Leaves nothing behind.
  outcome (*run)(const watch::monitor_set& watched_by, sources& seen) noexcept;
};

// In both lists, any thread; they take about a millisecond each.
[[nodiscard]] std::span<const probe> system_calls() noexcept;
[[nodiscard]] outcome free_of_64_mebibytes(const watch::monitor_set& watched_by, sources& seen) noexcept;
[[nodiscard]] std::span<const probe> allocator_habits() noexcept;  ///< of the `malloc` that this process has

}  // namespace pinfold::monitors
