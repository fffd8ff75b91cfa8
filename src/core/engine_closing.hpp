// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Calling the driver to close, quarantine, and the steps that are due after a pin was given back.
#pragma once

#include "core/engine_waiting.hpp"
#include "core/open_waiter.hpp"

#include <cstddef>
#include <optional>

namespace pinfold::detail {

class engine_closing : public engine_waiting {
 public:
  using engine_waiting::engine_waiting;

 protected:
  using open_waiter = core::open_waiter;

  result<void> close(shard& in, entry& closable, std::optional<event_kind> why = {}) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] bool close_unpublished(shard& in, entry& opening, const opened& made) noexcept
      PINFOLD_REQUIRES(in.mutex);                                                                 // unlocks
  result<void> close_queued(shard& in, std::size_t at_most) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  result<void> close_evicting(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);                     // unlocks
  result<void> retry_quarantined(shard& in, core::deadline until = core::deadline::max()) noexcept
      PINFOLD_REQUIRES(in.mutex);                                                                  // unlocks
  result<void> unpin(shard& in, entry& held) noexcept PINFOLD_REQUIRES(in.mutex);                  // unlocks
  result<void> unpinned(shard& in, entry& freed, bool later) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
};

}  // namespace pinfold::detail
