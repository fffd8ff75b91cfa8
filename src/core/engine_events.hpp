// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory that is gone: events of monitors, calls that withdraw memory, and the registrations that `quiesce` lists.
#pragma once

#include "core/engine_room.hpp"
#include "core/leased_notices.hpp"
#include "core/log_reader.hpp"
#include "core/quiesced.hpp"

#include <cstdint>

namespace pinfold::detail {

class engine_events : public engine_room {
 public:
  using engine_room::engine_room;

  void invalidate(peer_id peer, const range& gone, const void* token = nullptr) noexcept;
  /// Marks the registrations there that earlier events have made stale.
  void mark_stale(const range& where) noexcept {
    request what;
    what.wanted = where;
    catch_up(what);
  }
  /// Ends the persistence of the registrations there, including those that `quiesce` closed.
  void unpersist(peer_id peer, const range& where) noexcept;
  /// Invalidates the peer's entries there, only those with `token` if it is not null, and closes idle ones.
  result<void> drop(peer_id peer, const range& where, const void* token = nullptr) noexcept;
  /// Returns what `quiesce` closed. Threads that register it again `restore` one registration after the other.
  [[nodiscard]] core::quiesced& quiesced() noexcept { return quiesced_; }

 protected:
  using invalidated_entries = core::invalidated_entries;

  void replace(shard& in, entry& stale) noexcept PINFOLD_REQUIRES(in.mutex);            // unlocks
  void replace_and_close(shard& in, entry& stale) noexcept PINFOLD_REQUIRES(in.mutex);  // unlocks
  /// Returns whether events were pending: hits were impossible until now.
  bool catch_up(const request& what) noexcept {
    if (monitors_.strict()) monitors_.wait_for_events();
    if (view_.current()) [[likely]]
      return false;
    process_invalidations(what);
    return true;
  }
  void catch_up_with_everything() noexcept;
  void read_up_to_now() noexcept {
    if (!view_.current()) [[unlikely]]
      read_all_events();
  }
  static void doom_if_gone(shard& in, entry& opening) noexcept PINFOLD_REQUIRES(in.mutex);
  void unpersist_open(peer_id peer, const range& where, core::quiesced::withdrawing* call = nullptr) noexcept;
  [[nodiscard]] result<void> begin_quiescing() noexcept;
  void begin_remembering(core::being_closed& mine);

  core::log_reader events_{event_log_};
  core::quiesced quiesced_{driver_.token_bytes(), watched_, changes_};

 private:
  using happened = core::happened;
  using reading = core::log_reader::progress;

  void process_invalidations(const request& what) noexcept;
  [[nodiscard]] happened what_happened() const noexcept;
  [[nodiscard]] bool deal_with_some(const range& wanted, const happened& known) noexcept;
  [[nodiscard]] reading read_log(std::uint64_t target) noexcept;
  void deliver(const range& gone) noexcept;
  [[nodiscard]] bool process_pending(const range& wanted, core::leased_notices& still_held) noexcept;
  [[nodiscard]] bool invalidate_where(shard& in, const range& wanted, invalidated_entries& into) noexcept
      PINFOLD_REQUIRES(in.mutex);
  void invalidate_some(shard& in, invalidated_entries& into) noexcept PINFOLD_REQUIRES(in.mutex);
  void read_all_events() noexcept;
  void tell_driver(const shard& in, const invalidated_entries& gone) const noexcept PINFOLD_REQUIRES(in.mutex);
  void list_what_is_open(core::remembered_list& listed) const;
  [[nodiscard]] static bool worth_remembering(const shard& in, const entry& one) noexcept PINFOLD_REQUIRES(in.mutex);
};

}  // namespace pinfold::detail
