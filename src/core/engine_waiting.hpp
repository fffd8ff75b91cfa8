// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Barriers, waiting, and waking the threads that wait.
#pragma once

#include "core/engine_state.hpp"
#include "core/reaper_thread.hpp"
#include "core/release_watch.hpp"

#include <atomic>

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
  [[nodiscard]] core::deadline end_of_transient(const deadlines& until) const noexcept;
  bool order_hits(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);
  void settle(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);
  void closes_are_due() noexcept;
  void wake_reaper() noexcept;

  core::reaper_thread reaper_;

 private:
  [[nodiscard]] bool any_transient(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks

  std::atomic<core::deadline> last_vain_wait_{core::deadline{}};  // for transient pins
};

}  // namespace pinfold::detail
