// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The specification of a cache of local memory in its simplest form: which entry serves a request, with which access
/// memory is registered, and which entries that supersedes.
#pragma once

#include "model/oracle.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>

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

  struct request {
    range wanted;
    access_flags need;
    bool persistent = false;
    bool bypass = false;
    bool restoring = false;  ///< only into free room, and not if the memory is invalidated meanwhile
  };

  outcome acquire(const range& wanted, access_flags need, bool persistent, bool bypass,
                  const std::optional<choice>& taken) {
    const request what{wanted, need, persistent, bypass};
    if (auto served = serve(what, taken)) return *served;
    if (options_.merge != merge_policy::none && !bypass) {
      const item all = merged(alone(what));
      if (!(all.memory == wanted && all.access == alone(what).access) && !open(all)) return {};
    }
    return open(alone(what));
  }

  /// The first part of an acquire, until the driver is asked: `opening` is null if that is not needed.
  struct begun {
    outcome refused{};
    item* opening = nullptr;
  };
  begun begin_acquire(const request& what, const std::optional<choice>& taken) {
    if (auto served = serve(what, taken)) return {*served};
    return begin_open(alone(what));
  }
  /// The rest, with the driver's answer.
  enum class answer : std::uint8_t { opened, refused, asked_again };
  answer end_open(item& opening) {
    if (auto refused = device_says(opening.access)) {
      ++done_.failed_opens;
      if (asks_again(opening, *refused)) return ask_again(opening);
      refused_ = *refused;
      abandon(opening);
      return answer::refused;
    }
    if (opening.stale && opening.late < 3 && close_unpublished()) {
      if (opening.merged || opening.restoring) {
        refused_ = opening.merged ? errc::in_use_conflict : errc::invalid_range;
        abandon(opening);
        return answer::refused;
      }
      opening.stale = false;
      ++opening.late;
      return ask_again(opening);
    }
    end_publishing(opening);
    return answer::opened;
  }
  /// Returns why the last open that was refused was.
  [[nodiscard]] errc refusal() const noexcept { return refused_; }

  /// Takes the one to be restored next.
  std::optional<request> take_hottest() {
    if (quiesced_.empty()) return std::nullopt;
    const item one = quiesced_.front();
    quiesced_.pop_front();
    return request{one.memory, one.access, one.persistent, false, true};
  }
  /// Returns how many entries could serve a request.
  [[nodiscard]] std::size_t serving(const range& wanted, access_flags need) const {
    return count_if(
        [&](const item& i) { return findable(i) && i.memory.contains(wanted) && contains_all(i.access, need); });
  }

  bool find(const range& wanted, access_flags need, const std::optional<choice>& taken) {
    item* found = live(wanted, need, taken);
    if (found != nullptr) lease(*found);
    return found != nullptr;
  }
  [[nodiscard]] auto registered() const {
    std::multiset<std::tuple<std::uintptr_t, std::uintptr_t, access_flags>> all;
    for (const auto& i : items_)
      if (!is_opening(i)) all.emplace(i.memory.begin, i.memory.end, i.access);
    return all;
  }

 private:
  // Serves a request, or refuses it, if the driver need not be asked. A request that would wait for another thread's
  // open is refused: here `wait_timeout` is 0.
  std::optional<outcome> serve(const request& what, const std::optional<choice>& taken) {
    const bool shared = !what.bypass;
    if (item* found = shared ? live(what.wanted, what.need, taken, what.persistent) : nullptr) {
      ++found->hits;
      return lease(*found, what.persistent);
    }
    if (shared && what.wanted.size() > options_.max_bytes) return errc::larger_than_budget;
    if (shared && joins(what)) return errc::timed_out;
    close_queued(4);
    return std::nullopt;
  }
  [[nodiscard]] bool joins(const request& what) const {
    return std::any_of(items_.begin(), items_.end(), [&](const item& i) {
      return is_opening(i) && !i.stale && !(what.persistent && i.bypass) && i.memory.contains(what.wanted) &&
             contains_all(i.access, what.need);
    });
  }
  item alone(const request& what) {
    const auto access = what.bypass ? what.need : what.need | around(what.wanted, what.persistent);
    return {.memory = what.wanted,
            .access = access,
            .persistent = what.persistent,
            .bypass = what.bypass,
            .need = what.need,
            .unshared = what.bypass,
            .restoring = what.restoring};
  }
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
      if ((findable(i) || (is_opening(i) && !i.stale)) && !(persistent && i.bypass) && i.memory.contains(wanted))
        all = all | i.access;
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
      from.merged = true;
      return true;
    };
    for (auto all = overlapping(from.memory); std::any_of(all.begin(), all.end(), grows);)
      all = overlapping(from.memory);
    return from;
  }
  outcome open(const item& fresh) {
    const auto [refused, opening] = begin_open(fresh);
    if (opening == nullptr) return refused;
    for (;;) switch (end_open(*opening)) {
        case answer::opened: return {};
        case answer::refused: return refused_;
        case answer::asked_again: break;
      }
  }
  begun begin_open(item fresh) {
    if (fresh.restoring && !fits(fresh.memory.size())) return {errc::over_budget};
    if (const auto refused = make_room(fresh, !fresh.merged)) return {refused};
    return {{}, &claim(fresh)};
  }
  bool asks_again(item& opening, errc refused) {
    if (refused == errc::out_of_resources)
      return done_.closes != opening.closes_before || (!opening.restoring && make_room_in_driver());
    if (opening.access == opening.need) return false;
    opening.access = opening.need;
    return true;
  }
  answer ask_again(item& opening) {
    opening.closes_before = done_.closes;
    return answer::asked_again;
  }
  // What the driver opened for memory that was invalidated meanwhile.
  bool close_unpublished() {
    if (failing_closes > 0) return --failing_closes, ++done_.failed_closes, false;
    ++done_.opens;
    ++done_.closes;
    return true;
  }
  void end_publishing(item& opened) {
    publish(opened);
    if (opened.unshared || opened.stale) {
      kept_.remove(opened);
      opened.state = entry_state::draining;
      return;
    }
    supersede(opened);
    const auto covers = [&](const item& i) {
      return &i != &opened && findable(i) && !i.bypass && i.memory.contains(opened.memory) &&
             contains_all(i.access, opened.access);
    };
    if (!opened.persistent && std::any_of(items_.begin(), items_.end(), covers)) retire(opened);
  }
  outcome device_says(access_flags access) {
    if (failing_opens > 0) return --failing_opens, open_failure;
    if (refuse_unions && count(access) > 3) return errc::driver_error;
    if (items_.size() - opening() >= capacity_) return errc::out_of_resources;
    return {};
  }
  static int count(access_flags access) { return __builtin_popcount(static_cast<unsigned>(access)); }

  void supersede(const item& by) {
    for (item* i : overlapping(by.memory))
      if (i != &by && findable(*i) && !i->persistent && by.memory.contains(i->memory) &&
          contains_all(by.access, i->access))
        retire(*i);
  }

  errc refused_{};
};

}  // namespace pinfold::testing
