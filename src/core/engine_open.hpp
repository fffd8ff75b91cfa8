// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The steps that every miss takes. Inline, so that the plain miss is one function (engine_miss.cpp).
#pragma once

#include "core/engine_opening.hpp"
#include "core/entry_table_open.hpp"
#include "os/mapped.hpp"

namespace pinfold::detail {

/// Returns the first byte of a request. Every entry that covers the request covers it, so the caller need not visit
/// entries that only overlap the request.
inline range first_byte(const request& what) noexcept { return {what.wanted.begin, what.wanted.begin + 1}; }

// Refuses bad input before the mutex is taken and before any work whose cost grows with the size (R59). `monitors_` is
// set only where monitors watch mappings of this process; with `manual` a cache accepts any addresses.
inline result<range> engine_opening::checked(const request& what) const noexcept {
  constexpr std::size_t huge = std::size_t{1} << 32U;
  auto extent = driver_.check(what);
  if (!extent || driver_.imports()) return extent;
  const auto [begin, end] = what.wanted;
  if (!what.unbudgeted && !budget_.can_ever_hold(end - begin)) return tl::unexpected(larger_than_budget());
  if (monitors_.any() && end - begin >= huge && !(os::is_mapped(begin) && os::is_mapped(end - 1)))
    return fail(errc::invalid_range, "part of the range is not mapped");
  return extent;
}

// Announces the cell size of a new entry, and reads the count of wide entries. Returns whether other shards may have
// entries that overlap it.
inline bool engine_opening::announce_level(const range& extent, overlaps_elsewhere& other) noexcept {
  const auto level = core::shard_map::level_of(extent);
  shards_.map().use(level);
  other.wide = level > 0;
  other.wide_before = shards_.map().wide_published();
  return other.wide || !shards_.map().smallest_only();
}

// Claims an entry, and wakes the reaper for the first one: from now on an event or time could affect an entry.
inline engine_opening::new_entry engine_opening::claim(shard& in, const request& what, const extent_to_open& to,
                                                       lookup_result& seen) noexcept {
  const new_entry fresh = in.table.claim(what, to, seen, in.pending);
  if (in.table.size() == 1) [[unlikely]]
    wake_reaper();
  return fresh;
}

// Memory that was replaced since the engine asked what is mapped there may be of a file that other processes change.
inline result<opened> engine_opening::call_open(shard& in, entry& opening, const record& hot,
                                                const request& what) noexcept {
  in.table.enter_driver(opening);
  const auto* token = driver_.token_of(hot);
  const open_request asked{driver_.imports() ? imported_part_of(hot).peer : peer_id{}, hot.covered(), token,
                           opening.access, what.argument};
  bool seen = false;
  auto made = os::unlocked(in.mutex, [&] {
    seen = monitors_.watch(asked.extent, reporter_);
    auto answer = driver_.open(asked);
    if (audit_ && answer) audit_->note(&hot, answer->covered);
    read_up_to_now();  // before `leave_driver`: while other threads see that the driver may have it open
    if (event_log_.generation().load(std::memory_order_acquire) != what.events_before) [[unlikely]]
      seen = seen && !others_could_take(what, asked.extent);
    return answer;
  });
  in.table.leave_driver(opening);
  if (!seen || (made && made->for_one_lease)) in.table.make_unshared(opening);
  return made;
}

inline void engine_opening::publish(shard& in, entry& opening, record& hot, const opened& made) noexcept {
  in.table.publish(opening, hot, made);
  if (!in.table.settled()) [[unlikely]]
    settle(in);
  PINFOLD_ASSERT(opening.now() == entry_state::live || opening.now() == entry_state::draining, "it is open");
  in.waiting.notify(&opening);
}

inline void engine_opening::count_miss(shard& in, miss_reason reason) noexcept {
  constexpr auto first = static_cast<std::uint8_t>(counter::misses_cold);
  in.counts.add(static_cast<counter>(first + static_cast<std::uint8_t>(reason)));
}

inline void engine_opening::count_end(shard& in, const result<grant>& granted, miss_reason reason) noexcept {
  if (granted) return count_miss(in, reason);
  in.counts.add(counter::failed_acquires);
}

}  // namespace pinfold::detail
