// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Barriers, waiting, and waking the threads that wait.
#pragma once

#include "core/engine_state.hpp"
#include "core/leased_pace.hpp"
#include "core/reaper_thread.hpp"
#include "core/release_watch.hpp"

namespace pinfold::detail {

class engine_waiting : public engine_state {
 public:
  using engine_state::engine_state;

 protected:
  using change_waiter = core::change_signal::waiter;
  using release_watch = core::release_watch;

  bool wait_for(shard& in, const void* what, core::deadline until) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] bool wait_for_change(shard& in, change_waiter& self, core::deadline until) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] bool wait_for_change(change_waiter& self, core::deadline until) noexcept;
  [[nodiscard]] bool wait_for_release(shard& in, release_watch& watch, core::deadline until) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] bool wait_for_transient(shard& in, release_watch& watch, const deadlines& until) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  bool order_hits(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);
  void settle(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);
  /// Sorts them after the barrier. Notes which pins may be transient.
  void settle_ordered(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);
  /// Notes a pin on an entry that perhaps only this pin keeps open.
  void note_pinned(shard& in, const entry& kept_open) noexcept PINFOLD_REQUIRES(in.mutex);
  void closes_are_due() noexcept;
  void wake_reaper() noexcept;

  core::leased_pace pace_;
  core::reaper_thread reaper_;
};

}  // namespace pinfold::detail
