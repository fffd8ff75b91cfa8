// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What the specifications of all caches share, in its simplest form (lists, linear searches, one thread): which
/// entries are open, which stay open, and which are closed when.
#pragma once

#include "model/second_chance.hpp"
#include "support/doubles/fake_importer.hpp"

#include <pinfold/access.hpp>
#include <pinfold/options.hpp>
#include <pinfold/statistics.hpp>

#include <algorithm>
#include <cstdint>
#include <list>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace pinfold::testing {

class oracle {
 public:
  struct item {
    range memory;
    fake_handle handle{};                      // of imported memory
    access_flags access = access_flags::none;  // to registered memory
    bool persistent = false;
    bool bypass = false;
    entry_state state = entry_state::live;
    bool stale = false;
    int leases = 0;
    bool visited = false;    // since the hand last passed
    unsigned moved = 0;      // when it entered its current index
    std::uint64_t hits = 0;  // of acquires

    // While it is being opened. The opener's pin counts as a lease.
    access_flags need = access_flags::none;  // without what other entries add
    bool merged = false;
    bool unshared = false;
    bool restoring = false;         // evicts nothing, and does not outlive an invalidation
    int late = 0;                   // opens that came before an invalidation
    std::uint64_t closes_before{};  // when the driver was asked
  };
  using outcome = std::optional<errc>;  // none: success

  int failing_opens = 0;
  errc open_failure = errc::driver_error;
  int failing_closes = 0;

  /// What the driver and the engine did, to be compared with the counters.
  struct counts {
    std::uint64_t opens = 0, closes = 0, failed_opens = 0, failed_closes = 0, evicted = 0;
  };
  [[nodiscard]] const counts& done() const noexcept { return done_; }

  /// The item that the last successful call leased.
  [[nodiscard]] item* granted() const noexcept { return granted_; }

  bool release(item& one) {
    kept_.release(one);
    if (--one.leases > 0) return true;
    if (one.state == entry_state::live && (one.persistent || options_.retain) && !one.bypass) return true;
    if (options_.closes == close_policy::immediate) return close(one);
    if (one.state == entry_state::live) hide(one);
    queued_.push_back(&one);
    return true;
  }
  void invalidate(const range& gone, std::uint64_t exporter = 0) {
    quiesced_.remove_if([&](const auto& one) { return one.handle.exporter == exporter && one.memory.overlaps(gone); });
    for (item* one : overlapping(gone, exporter)) {
      if (findable(*one) || one->leases > 0) one->stale = true;
      if (findable(*one)) retire(*one);
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

  void unpersist(const range& where) {
    for (auto& one : quiesced_)
      if (one.memory.overlaps(where)) one.persistent = false;
    end_persistence(where);
  }
  void end_persistence(const range& where) {
    for (item* one : overlapping(where)) {
      if (one->state == entry_state::opening && !one->stale) one->persistent = false;
      if (one->state != entry_state::live || !one->persistent) continue;
      one->persistent = false;
      add_if_reusable(*one);
      if (one->leases == 0) ++one->leases, release(*one);
    }
  }
  std::size_t evict(std::size_t most) {
    std::size_t count = 0;
    while (count < most && close_one_for_room()) ++count;
    return count;
  }

  /// Closes everything, and remembers it: the new ones first, by their hits, then those of earlier calls.
  outcome quiesce() {
    if (leased() + opening() > 0) return errc::in_use_conflict;
    auto listed = worth_restoring();
    end_persistence({0, UINTPTR_MAX});
    const bool all = flush();
    for (const item& old : quiesced_) {
      const auto newer = [&](const item& one) {
        return one.handle.exporter == old.handle.exporter && one.memory == old.memory &&
               contains_all(one.access, old.access);
      };
      if (std::none_of(listed.begin(), listed.end(), newer)) listed.push_back(old);
    }
    quiesced_ = std::move(listed);
    return all ? outcome{} : errc::driver_error;
  }
  /// What `quiesce` will remember, those with the most hits first.
  [[nodiscard]] std::list<item> worth_restoring() const {
    std::list<item> all;
    for (const item& one : items_)
      if (findable(one) && !one.bypass) all.push_back(one);
    all.sort([](const item& a, const item& b) { return a.hits > b.hits; });
    return all;
  }
  [[nodiscard]] const std::list<item>& quiesced() const noexcept { return quiesced_; }

  /// Returns the hits on an entry that requests may find; 0 if there is none.
  [[nodiscard]] std::uint64_t hits_on(const range& memory, access_flags access) const {
    for (const auto& i : items_)
      if (findable(i) && i.memory == memory && i.access == access) return i.hits;
    return 0;
  }
  [[nodiscard]] const cache_options& options() const noexcept { return options_; }

  /// Returns the leases that are out.
  [[nodiscard]] std::size_t leased() const {
    std::size_t all = 0;
    for (const auto& i : items_)
      if (i.state != entry_state::opening) all += static_cast<std::size_t>(i.leases);
    return all;
  }
  /// Returns how many registrations the driver is asked for.
  [[nodiscard]] std::size_t opening() const {
    return count_if([](const item& i) { return is_opening(i); });
  }
  [[nodiscard]] std::size_t quarantined() const {
    return count_if([](const item& i) { return i.state == entry_state::quarantined; });
  }
  /// Returns the bytes in the budget, or outside of it.
  [[nodiscard]] std::size_t bytes(bool bypass) const {
    std::size_t all = 0;
    for (const auto& i : items_)
      if (i.bypass == bypass) all += i.memory.size();
    return all;
  }

  using entries =
      std::multiset<std::tuple<std::uint64_t, std::uintptr_t, std::uintptr_t, entry_state, std::uint64_t, bool>>;
  /// Returns everything that is open, to be compared with `dump()`.
  [[nodiscard]] entries listed() const {
    entries all;
    for (const auto& i : items_)
      all.emplace(i.handle.exporter, i.memory.begin, i.memory.end, i.state, i.leases, i.bypass);
    return all;
  }

 protected:
  using items = std::list<item*>;

  oracle(const cache_options& options, std::size_t capacity) : options_(options), capacity_(capacity) {}
  ~oracle() = default;

  /// Returns whether the driver hears of it when the item is closed.
  [[nodiscard]] virtual bool closes_in_driver(const item&) const { return true; }

  items overlapping(const range& where, std::uint64_t exporter = 0) {  // live ones first, then hidden ones
    items all;
    for (auto& i : items_)
      if (i.handle.exporter == exporter && i.memory.overlaps(where)) all.push_back(&i);
    const auto key = [](const item* i) { return std::tuple(!findable(*i), i->memory.begin, i->memory.end, i->moved); };
    all.sort([&](item* a, item* b) { return key(a) < key(b); });
    return all;
  }
  static bool findable(const item& one) { return one.state == entry_state::live || one.state == entry_state::evicting; }
  void add_if_reusable(item& one) {
    if (one.state == entry_state::live && options_.retain && !one.bypass && !one.persistent) kept_.add(one);
  }
  static bool is_opening(const item& one) { return one.state == entry_state::opening; }
  template <class Which>
  [[nodiscard]] std::size_t count_if(Which&& which) const {
    return static_cast<std::size_t>(std::count_if(items_.begin(), items_.end(), which));
  }
  outcome lease(item& one, bool persistent = false) {
    if (one.state == entry_state::evicting) kept_.revive(one);
    one.visited = true;
    ++one.leases;
    if (persistent) kept_.remove(one);
    one.persistent = one.persistent || persistent;
    granted_ = &one;
    return {};
  }
  item& claim(item fresh) {
    fresh.leases = 1;
    fresh.moved = ++moves_;
    fresh.state = entry_state::opening;
    fresh.closes_before = done_.closes;
    items_.push_back(fresh);
    return items_.back();
  }
  void publish(item& opened) {
    opened.state = entry_state::live;
    granted_ = &opened;
    ++done_.opens;
    add_if_reusable(opened);
  }
  item& enter(const item& fresh) {
    publish(claim(fresh));
    return *granted_;
  }
  void abandon(item& opening) {
    items_.remove_if([&](auto& i) { return &i == &opening; });
  }
  void retire(item& one) {
    hide(one);
    kept_.remove(one);
    if (one.leases == 0) queued_.push_back(&one);
  }
  bool close(item& one) {
    kept_.remove(one);
    for (auto* list : {&queued_, &owed_}) list->remove(&one);
    if (failing_closes > 0 && closes_in_driver(one)) {
      --failing_closes;
      ++done_.failed_closes;
      if (findable(one)) hide(one);
      one.state = entry_state::quarantined;
      owed_.push_back(&one);
      return false;
    }
    ++done_.closes;
    items_.remove_if([&](auto& i) { return &i == &one; });
    return true;
  }
  bool close_queued(std::size_t most) {
    bool all = true;
    for (std::size_t i = 0; i < most && !queued_.empty(); ++i) all = close(*queued_.front()) && all;
    return all;
  }
  /// Makes room in the budget, or takes the item out of it.
  outcome make_room(item& fresh, bool may_bypass = true) {
    for (bool retried = false; !fresh.bypass && !fits(fresh.memory.size());) {
      if (close_one_for_room()) continue;
      if (!retried && !owed_.empty()) {
        retried = true;
        retry();
      } else if (options_.full == when_full::bypass && !fresh.persistent && may_bypass) {
        fresh.bypass = true;
      } else {
        return errc::over_budget;
      }
    }
    return {};
  }
  /// Returns false where nothing could be closed to make room in the driver.
  bool make_room_in_driver() {
    const auto before = items_.size();
    return close_one_for_room() || (retry(), items_.size() < before);
  }

  cache_options options_;
  std::size_t capacity_;  // of the driver
  std::list<item> items_;
  second_chance<item> kept_;
  std::list<item> quiesced_;  // to be restored, in this order
  counts done_;

 private:
  void hide(item& one) {
    one.state = entry_state::draining;
    one.moved = ++moves_;
  }
  bool retry() {
    bool all = true;
    for (auto left = owed_.size(); left > 0; --left) all = close(*owed_.front()) && all;
    return all;
  }
  bool close_one_for_room() {
    item* next = queued_.empty() ? kept_.victim() : queued_.front();
    if (next == nullptr) return false;
    if (queued_.empty()) ++done_.evicted;
    close(*next);
    return true;
  }

 protected:
  [[nodiscard]] bool fits(std::size_t bytes) const {
    std::size_t used = 0;
    std::size_t count = 0;
    for (const auto& i : items_)
      if (!i.bypass) used += i.memory.size(), ++count;
    return used + bytes <= options_.max_bytes && count + 1 <= options_.max_count;
  }

 private:
  item* granted_ = nullptr;
  items queued_;  // without leases, and stale or superseded
  items owed_;    // their close failed
  unsigned moves_ = 0;
};

}  // namespace pinfold::testing
