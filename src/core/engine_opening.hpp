// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Chooses the extent that a miss registers, and opens it.
#pragma once

#include "core/engine_events.hpp"
#include "core/extent_to_open.hpp"
#include "core/page_audit.hpp"

#include <optional>

namespace pinfold::detail {

class engine_opening : public engine_events {
 public:
  using engine_events::engine_events;

 protected:
  using extent_to_open = core::extent_to_open;
  using miss_reason = core::miss_reason;
  using new_entry = core::entry_table::new_entry;
  /// Entries of other shards that overlap an open's range.
  struct overlaps_elsewhere {
    access_flags around = access_flags::none;
    bool beside = false;
    std::uint64_t wide_before = 0;
    bool wide = false;    ///< the request belongs to a larger cell than the smallest
    bool opened = false;  ///< the request was a miss, and its entry is findable
  };

  // engine_extent.cpp
  [[nodiscard]] static extent_to_open plain_extent(const request& what, const range& extent,
                                                   const lookup_result& seen) noexcept;
  [[nodiscard]] bool merges(const request& what) const noexcept;
  [[nodiscard]] extent_to_open merged_extent(shard& in, const request& what, const range& extent,
                                             const lookup_result& seen) const noexcept PINFOLD_REQUIRES(in.mutex);

  // engine_open.cpp
  [[nodiscard]] result<grant> open(shard& in, const request& what, const extent_to_open& to, lookup_result& seen,
                                   const deadlines& until) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] result<grant> open_claimed(shard& in, entry& fresh, const request& what,
                                           const deadlines& until) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] result<grant> finish(shard& in, entry& fresh, const request& what, result<opened>& made,
                                     closes_known before, const deadlines& until) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks

  /// Returns whether other processes could change a file under `extent` unseen by this cache's monitors (R30).
  [[nodiscard]] bool others_could_take(const request& what, const range& extent) const noexcept {
    return !what.unshared && !monitors_.see_files() && is_of_a_file(what, extent);
  }
  [[nodiscard]] bool is_of_a_file(const request& what, const range& extent) const noexcept;

  // engine_open.hpp: what every miss does, inline
  [[nodiscard]] bool announce_level(const range& extent, overlaps_elsewhere& other) noexcept;
  [[nodiscard]] result<range> checked(const request& what) const noexcept;
  [[nodiscard]] new_entry claim(shard& in, const request& what, const extent_to_open& to, lookup_result& seen) noexcept
      PINFOLD_REQUIRES(in.mutex);
  [[nodiscard]] result<opened> call_open(shard& in, entry& opening, const record& hot, const request& what) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  void publish(shard& in, entry& opening, record& hot, const opened& made) noexcept PINFOLD_REQUIRES(in.mutex);
  static void count_miss(shard& in, miss_reason reason) noexcept PINFOLD_REQUIRES(in.mutex);
  static void count_end(shard& in, const result<grant>& granted, miss_reason reason) noexcept
      PINFOLD_REQUIRES(in.mutex);
  /// Returns the grant of a pin on the record.
  [[nodiscard]] grant grant_on(pin held, const record& found, const request& what) const noexcept {
    const auto begin = what.wanted.begin;
    return {held, driver_.imports() ? local_address(found, begin) : reinterpret_cast<void*>(begin)};
  }
  /// Returns the grant of a pin that the entry counts.
  [[nodiscard]] grant grant_on(record& found, const request& what) const noexcept {
    return grant_on(reinterpret_cast<pin>(&found) | in_entry, found, what);
  }

  std::optional<core::page_audit> audit_;

 private:
  [[nodiscard]] extent_to_open merged(shard& in, const request& what, extent_to_open from) const noexcept
      PINFOLD_REQUIRES(in.mutex);
  [[nodiscard]] bool may_register(const request& what, const extent_to_open& all) const noexcept;
  void check_borrowed(shard& in, entry& fresh, const request& what, access_flags borrowed) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] result<void> take_free_room(shard& in, entry& fresh, std::size_t bytes) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] bool opened_too_late(shard& in, entry& opening, const opened& made) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] result<void> after_refusal(shard& in, entry& opening, const error& refused, const request& what,
                                           closes_known& before, const deadlines& until) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  [[nodiscard]] result<void> accept(shard& in, entry& opening, const opened& made, const deadlines& until) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
  void shrink(shard& in, entry& opening, std::size_t bytes) noexcept PINFOLD_REQUIRES(in.mutex);
  [[nodiscard]] error abandon(shard& in, entry& opening, const error& why, bool outdated = false) noexcept
      PINFOLD_REQUIRES(in.mutex);
  [[nodiscard]] error take_back(shard& in, entry& opening, const opened& made, const error& why) noexcept
      PINFOLD_REQUIRES(in.mutex);  // unlocks
};

}  // namespace pinfold::detail
