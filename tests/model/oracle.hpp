// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The specification of an import cache in its simplest form: lists, linear searches, one thread. The model test
/// compares the real cache with it after every step.
#pragma once

#include "model/second_chance.hpp"
#include "support/doubles/fake_importer.hpp"

#include <pinfold/options.hpp>
#include <pinfold/statistics.hpp>

#include <algorithm>
#include <list>
#include <set>
#include <tuple>
#include <vector>

namespace pinfold::testing {

class oracle {
 public:
  struct item {
    fake_handle handle;
    entry_state state = entry_state::live;
    int leases = 0;
    bool visited = false;  // since the hand last passed
    bool bypass = false;
  };
  using outcome = std::optional<errc>;  // none: success

  oracle(const cache_options& options, std::size_t capacity) : options_(options), capacity_(capacity) {}

  // The world.
  std::list<fake_handle> exported;
  int failing_opens = 0;
  errc open_failure = errc::driver_error;
  int failing_closes = 0;
  /// The importer opens an open handle again without the driver, and closes it in the driver when its last user has
  /// closed it.
  bool counts_opens = false;
  /// The driver checks for overlapping mappings, and for room, before it checks the handle.
  bool mapped_before_stale = false;

  /// The item that the last successful call leased.
  [[nodiscard]] item* granted() const noexcept { return granted_; }

  outcome acquire(const fake_handle& wanted, const range& part) {
    if (item* found = live(wanted, part)) return lease(*found);
    close_queued(4);
    for (;;) {
      if (item* stale = replaced(wanted, part)) {
        mark(*stale);
        if (options_.closes == close_policy::immediate) close_queued(SIZE_MAX);
      } else if (item* twin = counts_opens ? nullptr : unusable(wanted)) {
        if (twin->leases > 0) return errc::in_use_conflict;
        const bool owed = twin->state == entry_state::quarantined;
        if (!close(*twin) && owed) return errc::in_use_conflict;
      } else {
        return open({wanted});
      }
    }
  }

  bool find(const fake_handle& wanted, const range& part) {
    if (item* found = live(wanted, part)) return lease(*found), true;
    while (item* stale = replaced(wanted, part)) mark(*stale);
    return false;
  }

  bool release(const fake_handle& held) {
    return release(
        *std::find_if(items_.begin(), items_.end(), [&](auto& i) { return i.handle == held && i.leases > 0; }));
  }
  bool release(item& one) {
    if (--one.leases > 0) return true;
    if (one.state == entry_state::live && options_.retain && !one.bypass) return true;
    if (options_.closes == close_policy::immediate) return close(one);
    one.state = entry_state::draining;
    queued_.push_back(&one);
    return true;
  }

  void invalidate(std::uint64_t peer, const range& gone) {
    for (item* one : in_order(peer, gone))
      if (findable(*one)) mark(*one);
  }
  bool drop(std::uint64_t peer) {
    invalidate(peer, {0, UINTPTR_MAX});
    return options_.closes == close_policy::deferred || close_queued(SIZE_MAX);
  }
  bool progress() {
    const bool closed = close_queued(SIZE_MAX);
    return retry() && closed;
  }
  bool flush() {
    bool all = retry();
    all = close_queued(SIZE_MAX) && all;
    for (auto& idle = kept_.all_idle(); !idle.empty();) all = close(*idle.front()) && all;
    return all;
  }

  /// Returns everything that is open, to be compared with `dump()`.
  [[nodiscard]] auto listed() const {
    std::multiset<std::tuple<std::uint64_t, std::uintptr_t, std::uintptr_t, entry_state, std::uint64_t, bool>> all;
    for (const auto& i : items_)
      all.emplace(i.handle.exporter, i.handle.base, i.handle.base + i.handle.size, i.state,
                  static_cast<std::uint64_t>(i.leases), i.bypass);
    return all;
  }

 private:
  using items = std::list<item*>;

  items in_order(std::uint64_t peer, const range& where) {
    items all;
    for (auto& i : items_)
      if (i.handle.exporter == peer && i.handle.allocation().overlaps(where)) all.push_back(&i);
    all.sort([](item* a, item* b) { return a->handle.base < b->handle.base; });
    return all;
  }
  item* live(const fake_handle& wanted, const range&) {
    for (auto& i : items_)
      if (findable(i) && i.handle == wanted) return &i;
    return nullptr;
  }
  item* replaced(const fake_handle& wanted, const range& part) {
    for (item* i : in_order(wanted.exporter, part))
      if (findable(*i) && i->handle.allocation().contains(part) && i->handle != wanted) return i;
    return nullptr;
  }
  item* unusable(const fake_handle& wanted) {
    for (auto& i : items_)
      if (!findable(i) && i.handle == wanted) return &i;
    return nullptr;
  }
  static bool findable(const item& one) { return one.state == entry_state::live || one.state == entry_state::evicting; }
  [[nodiscard]] bool reusable(const item& one) const {
    return one.state == entry_state::live && options_.retain && !one.bypass;
  }
  outcome lease(item& one) {
    if (one.state == entry_state::evicting) kept_.revive(one);
    one.visited = true;
    ++one.leases;
    granted_ = &one;
    return {};
  }
  void mark(item& one) {
    one.state = entry_state::draining;
    kept_.remove(one);
    if (one.leases == 0) queued_.push_back(&one);
  }
  bool close(item& one) {
    kept_.remove(one);
    for (auto* list : {&queued_, &owed_}) list->remove(&one);
    if (failing_closes > 0 && !is_shared(one)) {
      --failing_closes;
      one.state = entry_state::quarantined;
      owed_.push_back(&one);
      return false;
    }
    items_.remove_if([&](auto& i) { return &i == &one; });
    return true;
  }
  bool close_queued(std::size_t most) {
    bool all = true;
    for (std::size_t i = 0; i < most && !queued_.empty(); ++i) all = close(*queued_.front()) && all;
    return all;
  }
  bool retry() {
    bool all = true;
    for (auto left = owed_.size(); left > 0; --left) all = close(*owed_.front()) && all;
    return all;
  }
  bool close_one_for_room() {
    item* next = queued_.empty() ? kept_.victim() : queued_.front();
    if (next == nullptr) return false;
    close(*next);
    return true;
  }
  bool fits(std::size_t bytes) {
    std::size_t used = 0;
    std::size_t count = 0;
    for (const auto& i : items_)
      if (!i.bypass) used += i.handle.size, ++count;
    return used + bytes <= options_.max_bytes && count + 1 <= options_.max_count;
  }
  outcome open(item fresh) {
    const auto& wanted = fresh.handle;
    if (wanted.size > options_.max_bytes) return errc::larger_than_budget;
    for (bool retried = false; !fits(wanted.size);) {
      if (close_one_for_room()) continue;
      if (!retried && !owed_.empty()) {
        retried = true;
        retry();
      } else if (options_.full == when_full::bypass) {
        fresh.bypass = true;
        break;
      } else {
        return errc::over_budget;
      }
    }
    for (;;) {
      const auto refused = driver_says(wanted);
      if (!refused) break;
      if (*refused == errc::already_mapped) {
        if (const auto conflict = clear(wanted)) return conflict;
      } else if (*refused == errc::out_of_resources) {
        const auto before = items_.size();
        if (!close_one_for_room() && (retry(), items_.size() == before)) return refused;
      } else {
        return refused;
      }
    }
    fresh.leases = 1;
    items_.push_back(fresh);
    granted_ = &items_.back();
    if (reusable(items_.back())) kept_.add(items_.back());
    return {};
  }
  [[nodiscard]] std::ptrdiff_t open_of(const fake_handle& handle) const {
    return std::count_if(items_.begin(), items_.end(), [&](auto& i) { return i.handle == handle; });
  }
  [[nodiscard]] bool is_shared(const item& one) const { return counts_opens && open_of(one.handle) > 1; }
  [[nodiscard]] std::size_t mappings() const {
    if (!counts_opens) return items_.size();
    std::set<std::uint64_t> serials;
    for (const auto& i : items_) serials.insert(i.handle.serial);
    return serials.size();
  }
  outcome driver_says(const fake_handle& wanted) {
    if (counts_opens && open_of(wanted) > 0) return {};
    if (failing_opens > 0) return --failing_opens, open_failure;
    if (mapped_before_stale) {
      if (!in_order(wanted.exporter, wanted.allocation()).empty()) return errc::already_mapped;
      if (mappings() >= capacity_) return errc::out_of_resources;
    }
    if (std::none_of(exported.begin(), exported.end(), [&](auto& h) { return h.exporter == wanted.exporter; }))
      return errc::peer_gone;
    if (std::find(exported.begin(), exported.end(), wanted) == exported.end()) return errc::stale_handle;
    if (!in_order(wanted.exporter, wanted.allocation()).empty()) return errc::already_mapped;
    if (mappings() >= capacity_) return errc::out_of_resources;
    return {};
  }
  outcome clear(const fake_handle& wanted) {
    for (;;) {
      auto way = in_order(wanted.exporter, wanted.allocation());
      if (way.empty()) return {};
      if (std::any_of(way.begin(), way.end(), [](item* i) { return i->leases > 0; })) return errc::in_use_conflict;
      way.sort([](item* a, item* b) { return findable(*a) > findable(*b); });
      if (!close(*way.back())) return errc::in_use_conflict;
    }
  }

  cache_options options_;
  std::size_t capacity_;
  std::list<item> items_;
  item* granted_ = nullptr;
  second_chance<item> kept_;
  items queued_;  // stale, without a lease
  items owed_;    // their close failed
};

}  // namespace pinfold::testing
