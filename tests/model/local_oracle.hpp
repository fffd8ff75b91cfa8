// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The specification of a cache of local memory in its simplest form: which entry serves a request, with which access
/// memory is registered, and which entries that supersedes.
#pragma once

#include "model/oracle.hpp"

#include <algorithm>

namespace pinfold::testing {

class local_oracle final : public oracle {
 public:
  local_oracle(const cache_options& options, std::size_t capacity) : oracle(options, capacity) {}

  bool refuse_unions = false;  // the device refuses more than three rights at once

  /// The entry that the cache took. Where several entries serve a request, any of them is right.
  struct choice {
    range memory;
    access_flags access;
  };

  outcome acquire(const range& wanted, access_flags need, bool persistent, bool bypass,
                  const std::optional<choice>& taken) {
    if (item* found = bypass ? nullptr : live(wanted, need, taken, persistent)) return lease(*found, persistent);
    if (!bypass && wanted.size() > options_.max_bytes) return errc::larger_than_budget;
    close_queued(4);
    const auto alone = [&] {
      const auto access = bypass ? need : need | around(wanted, persistent);
      return item{.memory = wanted, .access = access, .persistent = persistent, .bypass = bypass};
    };
    if (options_.merge != merge_policy::none && !bypass) {
      const item all = merged(alone());
      if (!(all.memory == wanted && all.access == alone().access) && !open(all, need, true)) return {};
    }
    return open(alone(), need, false);
  }
  bool find(const range& wanted, access_flags need, const std::optional<choice>& taken) {
    item* found = live(wanted, need, taken);
    if (found != nullptr) lease(*found);
    return found != nullptr;
  }
  void unpersist(const range& where) {
    for (item* one : overlapping(where))
      if (one->state == entry_state::live && one->persistent) {
        one->persistent = false;
        add_if_reusable(*one);
        if (one->leases == 0) ++one->leases, release(*one);
      }
  }
  [[nodiscard]] auto registered() const {
    std::multiset<std::tuple<std::uintptr_t, std::uintptr_t, access_flags>> all;
    for (const auto& i : items_) all.emplace(i.memory.begin, i.memory.end, i.access);
    return all;
  }

 private:
  // A persistent request is not served by a bypass entry, which its last lease closes.
  item* live(const range& wanted, access_flags need, const std::optional<choice>& taken, bool persistent = false) {
    item* first = nullptr;
    for (item* i : overlapping(wanted)) {
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
  item merged(item from) {
    const range wanted = from.memory;
    const auto grows = [&](const item* one) {
      const auto& with = one->memory;
      if (!findable(*one) || one->persistent || one->bypass) return false;
      if (options_.merge == merge_policy::rights && !with.contains(wanted)) return false;
      const range hull{std::min(from.memory.begin, with.begin), std::max(from.memory.end, with.end)};
      const auto access = from.access | one->access;
      if (hull == from.memory && access == from.access) return false;
      if (hull.size() > options_.max_bytes || (hull.size() > options_.merge_limit && !(hull == with))) return false;
      from.memory = hull;
      from.access = access;
      return true;
    };
    for (auto all = overlapping(from.memory); std::any_of(all.begin(), all.end(), grows);)
      all = overlapping(from.memory);
    return from;
  }
  outcome open(item fresh, access_flags need, bool merged) {
    const bool unshared = fresh.bypass;
    if (const auto refused = make_room(fresh, !merged)) return refused;
    while (const auto refused = device_says(fresh.access)) {
      if (*refused == errc::out_of_resources) {
        if (!make_room_in_driver()) return refused;
      } else if (fresh.access != need) {
        fresh.access = need;
      } else {
        return refused;
      }
    }
    item& made = enter(fresh);
    if (unshared) {
      made.state = entry_state::draining;
    } else {
      supersede(made);
    }
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
    for (item* i : overlapping(by.memory))
      if (i != &by && findable(*i) && !i->persistent && by.memory.contains(i->memory) &&
          contains_all(by.access, i->access))
        retire(*i);
  }
};

}  // namespace pinfold::testing
