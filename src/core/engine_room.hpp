// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Makes room: in the budget, in the node's budget, in the driver, and among the registrations that overlap.
#pragma once

#include "core/engine_lookup.hpp"

#include <cstddef>
#include <optional>

namespace pinfold::core {
class node_request;
}

namespace pinfold::detail {

/// The number of due closes that a miss does: closes do not pile up if threads only acquire, and no miss pays for a
/// whole invalidation.
inline constexpr std::size_t closes_per_miss = 4;

class engine_room : public engine_lookup {
 public:
  using engine_lookup::engine_lookup;

 protected:
  using closes_known = core::driver_calls::closes_known;
  /// The result of a search for an entry to close for room.
  enum class looked : std::uint8_t {
    closed_one,
    closing,  ///< another thread closes an entry
    nothing,
  };
  [[nodiscard]] looked close_one_for_room(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks

  [[nodiscard]] result<void> reserve(shard& in, entry& opening, std::size_t more_bytes, std::size_t more_count,
                                     const deadlines& until) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] static error larger_than_budget() noexcept;
  void gather_room(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  /// Closes idle entries for other processes, until this one has no more than its even share.
  void give_way() noexcept;
  void queue_released(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);
  void queue_idle(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);
  [[nodiscard]] bool any_quarantined() const noexcept;
  [[nodiscard]] result<void> free_resources(shard& in, const error& refused, closes_known& before,
                                            const deadlines& until) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] result<void> clear_conflicts(shard& in, entry& opening, const error& refused,
                                             const closes_known& before, const deadlines& until) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] result<bool> clear_overlaps(shard& in, peer_id peer, const range& where, const entry* opening,
                                            const error& refused, const deadlines& until) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] core::deadline end_of_conflict(const entry& pinned, const deadlines& until) const noexcept;

 private:
  // engine_reserve.cpp
  [[nodiscard]] std::optional<result<void>> without_room(shard& in, entry& opening, std::size_t more_bytes,
                                                         release_watch& watch, core::node_request& node,
                                                         const deadlines& until) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] bool may_bypass(const entry& opening) const noexcept;
  [[nodiscard]] result<void> bypass(shard& in, entry& opening, std::size_t more_bytes,
                                    core::node_request& request) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] error no_room(shard& in, const entry& opening, core::node_request& request) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks

  // engine_node.cpp
  void give_way(shard& in, std::size_t most) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] bool other_processes_matter(shard& in, const core::node_request& request) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] static bool dead_gave_room(shard& in, const core::node_request& request) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] static bool dead_gave_room_at_last(shard& in, const core::node_request& request) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] bool wait_for_room(shard& in, const entry& opening, release_watch& watch, core::node_request& request,
                                   const deadlines& until) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  /// Returns whether requests wait in turn with those of other processes.
  [[nodiscard]] bool takes_turns() const noexcept {
    return budget_.node() != nullptr && options_.full == when_full::wait;
  }
  void wait_for_turn(shard& in, const entry& opening, release_watch& watch, core::node_request& request,
                     const deadlines& until) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  void tell_refusal(shard& in, const entry& opening, core::node_request& request) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  void tell_no_room(shard& in, const entry& opening, const core::node_request& request, event_kind kind) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks

  // engine_room.cpp
  void mark_victims(shard& in, unsigned rounds) noexcept PINFOLD_REQUIRES(in.mutex);
  void mark_all_at_once(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);
  [[nodiscard]] looked close_one_of_all_at_once() noexcept;
  [[nodiscard]] bool close_marked(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] bool close_one_of(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] looked close_one_anywhere() noexcept;
  void retry_all_quarantined(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);                                // unlocks
  [[nodiscard]] bool retry_quarantined_once(shard& in, bool& retried) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  /// Returns whether room may come back without this shard's mutex.
  [[nodiscard]] bool others_give_back() const noexcept { return shards_.size() > 1 || budget_.node() != nullptr; }

  // engine_conflict.cpp
  [[nodiscard]] result<bool> clear_overlaps_elsewhere(shard& in, entry& opening, const error& refused,
                                                      const deadlines& until) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] bool cleared_in_other_caches(shard& in, const entry& opening) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] bool evictable(shard& in, entry& live) noexcept PINFOLD_REQUIRES(in.mutex);
  [[nodiscard]] bool unpinned_for_good(shard& in, const entry& one) const noexcept PINFOLD_REQUIRES(in.mutex);
};

}  // namespace pinfold::detail
