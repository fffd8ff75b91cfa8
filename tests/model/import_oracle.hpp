// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The specification of an import cache in its simplest form: when it opens a handle, and what it closes for that.
#pragma once

#include "model/oracle.hpp"

#include <algorithm>

namespace pinfold::testing {

class import_oracle final : public oracle {
 public:
  import_oracle(const cache_options& options, std::size_t capacity) : oracle(options, capacity) {}

  // The world.
  std::list<fake_handle> exported;
  /// The importer opens an open handle again without the driver, and closes it in the driver when its last user has
  /// closed it.
  bool counts_opens = false;
  /// The exporter confirms each open, also of an open handle.
  bool confirms_opens = false;
  /// The driver checks for overlapping mappings, and for room, before it checks the handle.
  bool mapped_before_stale = false;

  outcome acquire(const fake_handle& wanted, const range& part) {
    if (item* found = live(wanted)) return lease(*found);
    close_queued(4);
    for (;;) {
      if (item* stale = replaced(wanted, part)) {
        retire(*stale);
        if (options_.closes == close_policy::immediate) close_queued(SIZE_MAX);
      } else if (item* twin = counts_opens ? nullptr : unusable(wanted)) {
        if (twin->leases > 0) return errc::in_use_conflict;
        const bool owed = twin->state == entry_state::quarantined;
        if (!close(*twin) && owed) return errc::in_use_conflict;
      } else {
        return open({.memory = wanted.allocation(), .handle = wanted});
      }
    }
  }
  bool find(const fake_handle& wanted, const range& part) {
    if (item* found = live(wanted)) return lease(*found), true;
    while (item* stale = replaced(wanted, part)) retire(*stale);
    return false;
  }
  bool drop(std::uint64_t peer) {
    invalidate({0, UINTPTR_MAX}, peer);
    return options_.closes == close_policy::deferred || close_queued(SIZE_MAX);
  }

 private:
  item* live(const fake_handle& wanted) { return any_of(wanted, true); }
  item* unusable(const fake_handle& wanted) { return any_of(wanted, false); }
  item* any_of(const fake_handle& wanted, bool live) {
    for (auto& i : items_)
      if (findable(i) == live && i.handle == wanted) return &i;
    return nullptr;
  }
  item* replaced(const fake_handle& wanted, const range& part) {
    for (item* i : overlapping(part, wanted.exporter))
      if (findable(*i) && i->memory.contains(part) && i->handle != wanted) return i;
    return nullptr;
  }
  outcome open(item fresh) {
    const auto& wanted = fresh.handle;
    if (wanted.size > options_.max_bytes) return errc::larger_than_budget;
    if (const auto refused = make_room(fresh)) return refused;
    while (const auto refused = driver_says(wanted)) {
      if (*refused == errc::already_mapped) {
        if (const auto conflict = clear(wanted)) return conflict;
      } else if (*refused != errc::out_of_resources || !make_room_in_driver()) {
        return refused;
      }
    }
    enter(fresh);
    return {};
  }
  [[nodiscard]] std::ptrdiff_t open_of(const fake_handle& handle) const {
    return std::count_if(items_.begin(), items_.end(), [&](auto& i) { return i.handle == handle; });
  }
  [[nodiscard]] bool closes_in_driver(const item& one) const override {
    return !counts_opens || open_of(one.handle) == 1;
  }
  [[nodiscard]] std::size_t mappings() const {
    if (!counts_opens) return items_.size();
    std::set<std::uint64_t> serials;
    for (const auto& i : items_) serials.insert(i.handle.serial);
    return serials.size();
  }
  outcome driver_says(const fake_handle& wanted) {
    if (counts_opens && open_of(wanted) > 0) return confirms_opens ? handle_refused(wanted) : outcome{};
    if (failing_opens > 0) return --failing_opens, open_failure;
    const auto stale = handle_refused(wanted);
    if (stale && !mapped_before_stale) return stale;
    if (!overlapping(wanted.allocation(), wanted.exporter).empty()) return errc::already_mapped;
    if (mappings() >= capacity_) return errc::out_of_resources;
    return stale;
  }
  [[nodiscard]] outcome handle_refused(const fake_handle& wanted) const {
    if (std::none_of(exported.begin(), exported.end(), [&](auto& h) { return h.exporter == wanted.exporter; }))
      return errc::peer_gone;
    if (std::find(exported.begin(), exported.end(), wanted) == exported.end()) return errc::stale_handle;
    return {};
  }
  outcome clear(const fake_handle& wanted) {
    for (;;) {
      auto way = overlapping(wanted.allocation(), wanted.exporter);
      if (way.empty()) return {};
      if (std::any_of(way.begin(), way.end(), [](item* i) { return i->leases > 0; })) return errc::in_use_conflict;
      if (!close(*way.back())) return errc::in_use_conflict;
    }
  }
};

}  // namespace pinfold::testing
