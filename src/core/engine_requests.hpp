// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Serving requests that the hit path did not serve.
#pragma once

#include "core/engine_opening.hpp"

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>

namespace pinfold::detail {

class engine_requests : public engine_opening {
 public:
  using engine_opening::engine_opening;

  [[nodiscard]] result<grant> acquire(const request& what) noexcept {
    return reporter_.times_opens() || audit_ ? acquire_observed(what) : grant_for(what);
  }
  /// Serves a plain miss. Returns false, with no entry claimed, if the request is not plain: `acquire_generally` has to
  /// serve it.
  [[nodiscard]] bool plain_miss(const request& what, result<grant>& granted) noexcept;
  [[nodiscard]] result<grant> acquire_generally(const request& what) noexcept;
  void acquire_group(std::span<const request> what, std::span<result<grant>> granted) noexcept;
  [[nodiscard]] grant find(const request& what) noexcept;

 private:
  // engine_elsewhere.cpp
  [[nodiscard]] bool any_elsewhere(const shard& in, peer_id peer, const range& extent) noexcept;
  [[nodiscard]] std::optional<result<grant>> look_elsewhere(const shard& in, const request& what, const range& extent,
                                                            overlaps_elsewhere& other) noexcept;
  [[nodiscard]] std::optional<result<grant>> look_in(shard& other, const request& what, const range& extent,
                                                     overlaps_elsewhere& seen) noexcept
      PINFOLD_REQUIRES(other.mutex);  // unlocks
  void look_again_elsewhere(const shard& in, const request& what, const range& extent, overlaps_elsewhere& other,
                            result<grant>& granted) noexcept;
  void supersede_elsewhere(shard& in, const record& fresh, const overlaps_elsewhere& other) noexcept;
  [[nodiscard]] static bool still_findable(shard& in, const entry& fresh) noexcept;
  [[nodiscard]] bool covered_elsewhere(const shard& in, const entry& fresh) noexcept;

  // engine_miss.cpp
  [[nodiscard]] result<grant> grant_for(const request& asked) noexcept;
  [[nodiscard]] bool is_plain_in(shard& in, const request& what, const range& extent, lookup_result& seen) noexcept
      PINFOLD_REQUIRES(in.mutex);
  entry& open_plainly(shard& in, const request& what, const range& extent, lookup_result& seen, ledger* mine,
                      result<grant>& granted) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] grant hit_under_mutex(const request& what, bool any) noexcept;
  [[nodiscard]] result<grant> acquire_from(shard& in, const request& what, const range& extent) noexcept;
  [[nodiscard]] static std::size_t open_not_hittable(const shard& in) noexcept
      PINFOLD_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
    return in.table.open_not_hittable();
  }
  /// Prepares `registered_filter` to count `extent`. Returns false when there is no memory for that.
  [[nodiscard]] bool prepare_filter(const range& extent) noexcept {
    return watched_ == nullptr || watched_->prepare(extent);
  }
  [[nodiscard]] static error no_memory_for_page_counts() noexcept;
  [[nodiscard]] static request for_one_lease(request what) noexcept;

  // engine_acquire.cpp
  [[nodiscard]] grant find_any(const request& what) noexcept;
  [[nodiscard]] grant find_in(shard& in, const request& what) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] grant hit_if_live(shard& in, const request& what) noexcept PINFOLD_REQUIRES(in.mutex);
  [[nodiscard]] grant hit(shard& in, entry& found, const request& what) noexcept PINFOLD_REQUIRES(in.mutex);
  [[nodiscard]] result<grant> acquire_slowly(shard& in, const request& what, const range& extent,
                                             overlaps_elsewhere& other) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  static void look(shard& in, const request& what, const range& extent, const overlaps_elsewhere& other,
                   lookup_result& seen) noexcept PINFOLD_REQUIRES(in.mutex);
  [[nodiscard]] bool close_some_due(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] tl::unexpected<error> refused(shard& in, const error& why) noexcept PINFOLD_REQUIRES(in.mutex);
  [[nodiscard]] bool wait_for_overlapping_open(shard& in, const request& what, const range& extent,
                                               const deadlines& until, bool& patient) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] result<grant> join(shard& in, entry& opening, const request& what, const deadlines& until) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] result<void> wait_out(shard& in, entry& one, const deadlines& until) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] miss_reason reason_of_miss(shard& in, const request& what, const range& extent,
                                           const lookup_result& seen) const noexcept PINFOLD_REQUIRES(in.mutex);
  [[nodiscard]] bool spare_entry(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);       // unlocks
  [[nodiscard]] bool make_spare_entry(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  void grow_hit_table(shard& in, unsigned step) noexcept PINFOLD_REQUIRES(in.mutex);   // unlocks
  [[nodiscard]] bool grow_pool(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);         // unlocks
  [[nodiscard]] bool grow_index(shard& in) noexcept PINFOLD_REQUIRES(in.mutex);        // unlocks

  // engine_audit.cpp, engine_trace.cpp
  [[nodiscard]] bool passes_audit(const grant& granted) noexcept;
  void tell_failed_audit(const entry& found) noexcept;
  [[nodiscard]] result<grant> acquire_observed(const request& what) noexcept;
  [[nodiscard]] result<grant> acquire_traced(const request& what) noexcept;
  [[nodiscard]] result<grant> acquire_audited(const request& what) noexcept;
  [[nodiscard]] grant find_audited(const request& what) noexcept;
  void tell_request(const request& what, const result<grant>& granted, std::chrono::nanoseconds opened_for) noexcept;

  // engine_group.cpp
  struct group;
  struct group_member;
  void claim_group(std::span<const request> what, group& claimed) noexcept;
  [[nodiscard]] bool served_elsewhere(const shard& in, const request& what, const range& extent,
                                      overlaps_elsewhere& other) noexcept;
  [[nodiscard]] bool claim_if_simple(shard& in, const request& what, group_member& next) noexcept
      PINFOLD_REQUIRES(in.mutex);
  void open_group(std::span<const request> what, group& claimed, std::span<result<grant>> granted) noexcept;
  [[nodiscard]] result<grant> conclude(const request& what, group_member& one, result<opened>& made,
                                       const deadlines& until) noexcept;
};

}  // namespace pinfold::detail
