// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The specification of a cache of local memory in its simplest form: lists, linear searches, one thread.
#pragma once

#include "model/second_chance.hpp"

#include <pinfold/access.hpp>
#include <pinfold/options.hpp>
#include <pinfold/statistics.hpp>

#include <algorithm>
#include <list>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

namespace pinfold::testing {

class local_oracle {
 public:
  struct item {
    range memory;
    access_flags access;
    entry_state state = entry_state::live;
    int leases = 0;
    bool persistent = false;
    bool bypass = false;
    bool stale = false;
    bool visited = false;  // since the hand last passed
    unsigned moved = 0;    // when it entered its current index
  };
  using outcome = std::optional<errc>;  // none: success

  local_oracle(const cache_options& options, std::size_t capacity) : options_(options), capacity_(capacity) {}

  int failing_opens = 0;
  errc open_failure = errc::driver_error;
  int failing_closes = 0;
  bool refuse_unions = false;  // the device refuses more than three rights at once

  /// The entry that the cache took. Where several entries serve a request, any of them is right.
  struct choice {
    range memory;
    access_flags access;
  };

  /// Sets `held` to the item that the lease is on, when the request succeeds.
  outcome acquire(const range& wanted, access_flags need, bool persistent, bool bypass, item*& held,
                  const std::optional<choice>& taken) {
    if (item* found = bypass ? nullptr : live(wanted, need, taken, persistent))
      return lease(*(held = found), persistent);
    if (!bypass && wanted.size() > options_.max_bytes) return errc::larger_than_budget;
    close_queued(4);
    const auto access = bypass ? need : need | around(wanted, persistent);
    return open({wanted, access, entry_state::live, 0, persistent, bypass}, need, held);
  }
  item* find(const range& wanted, access_flags need, const std::optional<choice>& taken) {
    item* found = live(wanted, need, taken);
    if (found != nullptr) lease(*found, false);
    return found;
  }
  bool release(item& one) {
    if (--one.leases > 0) return true;
    if (one.state == entry_state::live && one.persistent && !one.bypass) return true;
    if (one.state == entry_state::live && options_.retain && !one.bypass) return true;
    if (options_.closes == close_policy::immediate) return close(one);
    if (one.state == entry_state::live) hide(one);
    queued_.push_back(&one);
    return true;
  }
  void invalidate(const range& gone) {
    for (item* one : in_order())
      if (one->memory.overlaps(gone) && (findable(*one) || one->leases > 0)) {
        one->stale = true;
        if (findable(*one)) retire(*one);
      }
  }
  void unpersist(const range& where) {
    for (item* one : in_order())
      if (one->memory.overlaps(where) && one->state == entry_state::live && one->persistent) {
        one->persistent = false;
        if (reusable(*one)) kept_.add(*one);
        if (one->leases == 0) ++one->leases, release(*one);
      }
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
  [[nodiscard]] auto listed() const {
    std::multiset<std::tuple<std::uintptr_t, std::uintptr_t, entry_state, std::uint64_t, bool>> all;
    for (const auto& i : items_)
      all.emplace(i.memory.begin, i.memory.end, i.state, static_cast<std::uint64_t>(i.leases), i.bypass);
    return all;
  }
  [[nodiscard]] auto registered() const {
    std::multiset<std::tuple<std::uintptr_t, std::uintptr_t, access_flags>> all;
    for (const auto& i : items_) all.emplace(i.memory.begin, i.memory.end, i.access);
    return all;
  }

 private:
  using items = std::list<item*>;

  items in_order() {  // live ones first, then hidden ones
    items all;
    for (auto& i : items_) all.push_back(&i);
    const auto key = [](const item* i) { return std::tuple(!findable(*i), i->memory.begin, i->memory.end, i->moved); };
    all.sort([&](item* a, item* b) { return key(a) < key(b); });
    return all;
  }
  static bool findable(const item& one) { return one.state == entry_state::live || one.state == entry_state::evicting; }
  [[nodiscard]] bool reusable(const item& one) const {
    return one.state == entry_state::live && options_.retain && !one.bypass && !one.persistent;
  }
  // A persistent request is not served by a bypass entry, which its last lease closes.
  item* live(const range& wanted, access_flags need, const std::optional<choice>& taken, bool persistent = false) {
    item* first = nullptr;
    for (item* i : in_order()) {
      if (persistent && i->bypass) continue;
      if (!findable(*i) || !i->memory.contains(wanted) || !contains_all(i->access, need)) continue;
      if (taken && i->memory == taken->memory && i->access == taken->access) return i;
      if (first == nullptr) first = i;
    }
    return first;
  }
  access_flags around(const range& wanted, bool persistent) {
    access_flags all = access_flags::none;
    for (auto& i : items_)
      if (findable(i) && !(persistent && i.bypass) && i.memory.contains(wanted)) all = all | i.access;
    return all;
  }
  outcome lease(item& one, bool persistent) {
    if (one.state == entry_state::evicting) kept_.revive(one);
    one.visited = true;
    ++one.leases;
    if (persistent) kept_.remove(one);
    one.persistent = one.persistent || persistent;
    return {};
  }
  void hide(item& one) {
    one.state = entry_state::draining;
    one.moved = ++moves_;
  }
  void retire(item& one) {
    kept_.remove(one);
    hide(one);
    if (one.leases == 0) queued_.push_back(&one);
  }
  bool close(item& one) {
    kept_.remove(one);
    for (auto* list : {&queued_, &owed_}) list->remove(&one);
    if (failing_closes > 0) {
      --failing_closes;
      if (findable(one)) hide(one);
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
      if (!i.bypass) used += i.memory.size(), ++count;
    return used + bytes <= options_.max_bytes && count + 1 <= options_.max_count;
  }
  outcome open(item fresh, access_flags need, item*& held) {
    const bool unshared = fresh.bypass;
    const auto bytes = fresh.memory.size();
    for (bool retried = false; !fresh.bypass && !fits(bytes);) {
      if (close_one_for_room()) continue;
      if (!retried && !owed_.empty()) {
        retried = true;
        retry();
      } else if (options_.full == when_full::bypass && !fresh.persistent) {
        fresh.bypass = true;
      } else {
        return errc::over_budget;
      }
    }
    while (const auto refused = device_says(fresh.access)) {
      if (*refused == errc::out_of_resources) {
        const auto before = items_.size();
        if (!close_one_for_room() && (retry(), items_.size() == before)) return refused;
      } else if (fresh.access != need) {
        fresh.access = need;
      } else {
        return refused;
      }
    }
    fresh.leases = 1;
    fresh.moved = ++moves_;
    items_.push_back(fresh);
    held = &items_.back();
    if (unshared) held->state = entry_state::draining;
    if (reusable(*held)) kept_.add(*held);
    if (!unshared) supersede(*held);
    return {};
  }
  outcome device_says(access_flags access) {
    if (failing_opens > 0) return --failing_opens, open_failure;
    if (refuse_unions && count(access) > 3) return errc::driver_error;
    if (items_.size() >= capacity_) return errc::out_of_resources;
    return {};
  }
  static int count(access_flags access) { return __builtin_popcount(static_cast<unsigned>(access)); }

  void supersede(const item& by) {
    for (item* i : in_order())
      if (i != &by && findable(*i) && !i->persistent && by.memory.contains(i->memory) &&
          contains_all(by.access, i->access))
        retire(*i);
  }

  cache_options options_;
  std::size_t capacity_;
  std::list<item> items_;
  second_chance<item> kept_;
  items queued_;  // without leases and stale or superseded
  items owed_;    // their close failed
  unsigned moves_ = 0;
};

}  // namespace pinfold::testing
