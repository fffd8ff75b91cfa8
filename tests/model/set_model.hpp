// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Sets of two caches and of one that was moved from, and what a `cache_set` does in its simplest form.
#pragma once

#include "model/start_up_side.hpp"

#include <pinfold/cache_set.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace pinfold::testing {

/// What the model asks of a set.
struct set_request {
  range memory;
  access_flags need;
  std::vector<std::size_t> chosen;
  set_options how;
  std::vector<std::uint32_t> distances;  ///< of the members

  static set_request of(std::uint32_t a, std::uint32_t b, const range& memory, access_flags need) {
    static constexpr set_policy policies[] = {set_policy::all, set_policy::near_first, set_policy::fixed_order};
    set_request made{memory, need, {}, {}, {a % 3, a / 3 % 3, a / 9 % 3}};
    for (std::size_t i = 0; i < 3; ++i)
      if (b % 8 == 0 || (b >> i & 1U) != 0) made.chosen.push_back(i);
    std::rotate(made.chosen.begin(), made.chosen.begin() + b / 8 % made.chosen.size(), made.chosen.end());
    made.how.policy = policies[a / 27 % 3];
    made.how.near_margin = a / 81 % 2;
    if (a / 162 % 3 > 0) made.how.required = b / 64 % (made.chosen.size() + 2);
    return made;
  }
  [[nodiscard]] bool may_fail() const { return how.required != every_member; }

  /// Returns the places in `chosen`, in the tiers in which they are asked.
  [[nodiscard]] std::vector<std::vector<std::size_t>> tiers() const {
    std::vector<std::pair<std::uint32_t, std::size_t>> order;
    for (std::size_t i = 0; i < chosen.size(); ++i)
      order.emplace_back(how.policy == set_policy::near_first ? distances[chosen[i]] : 0, i);
    std::sort(order.begin(), order.end());
    std::vector<std::vector<std::size_t>> all;
    auto reach = order.front().first + how.near_margin;
    all.emplace_back();
    for (const auto& [distance, place] : order) {
      if (distance > reach) {
        all.emplace_back();
        reach = distance;
      }
      all.back().push_back(place);
    }
    return all;
  }
};

/// The real lease of a set, and what each choice has to hold.
template <class Side>
class driven_set {
 public:
  using registrar_type = typename Side::registrar_type;
  using caches = std::array<Side*, 3>;  ///< null: moved from

  explicit driven_set(set_request what) : what_(std::move(what)), choices_(what_.chosen.size()) {}

  /// Acquires in both. Returns whether there is a lease.
  bool acquire(const caches& members, cache<registrar_type>& gone) {
    std::array<cache<registrar_type>*, 3> all{};
    for (std::size_t i = 0; i < 3; ++i) all[i] = members[i] != nullptr ? &members[i]->cache_ : &gone;
    cache_set<registrar_type> set(all, what_.distances);
    auto got = set.acquire(Side::at(what_.memory), what_.memory.size(), what_.need, what_.chosen, what_.how);
    if (got) real_ = std::move(*got);
    const auto expected = expect(members, got.has_value());
    RC_LOG() << "set: expected " << (expected ? name_of(*expected) : "success") << ", got "
             << (got ? "success" : describe(got.error())) << '\n';
    RC_ASSERT(expected.has_value() == !got.has_value());
    if (expected) RC_ASSERT(got.error().code == *expected);
    return got.has_value();
  }

  void compare() const {
    RC_ASSERT(real_.size() == choices_.size());
    std::vector<std::size_t> held;
    std::size_t pending = 0;
    auto failures = real_.failures();
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      const auto& one = choices_[i];
      RC_ASSERT(static_cast<bool>(real_[i]) == (one.held != nullptr));
      if (one.held != nullptr) RC_ASSERT(real_[i].stale() == one.held->stale);
      if (one.held != nullptr) held.push_back(what_.chosen[i]);
      pending += one.held == nullptr && !one.why ? 1 : 0;
      if (!one.why) continue;
      RC_ASSERT(!failures.empty());
      RC_ASSERT(failures.front().member == what_.chosen[i]);
      RC_ASSERT(failures.front().why.code == *one.why);
      failures.erase(failures.begin());
    }
    RC_ASSERT(failures.empty());
    RC_ASSERT(real_.pending() == pending);
    const auto keys = real_.registrations();
    RC_ASSERT(keys.size() == held.size());
    for (std::size_t i = 0; i < held.size(); ++i) RC_ASSERT(keys[i].member == held[i]);
  }

  /// Asks for one choice later.
  void late(const caches& members, std::size_t number, bool again) {
    if (!knows_hits(members)) return;
    const auto got = again ? real_.retry(number) : real_.at(number);
    if (number >= choices_.size()) {
      RC_ASSERT(got.error().code == errc::invalid_argument);
      return;
    }
    auto& one = choices_[number];
    if (one.held == nullptr && (again || !one.why)) acquire_late(members, number);
    RC_ASSERT(got.has_value() == (one.held != nullptr));
    if (!got) RC_ASSERT(got.error().code == *one.why);
  }

  void release(const caches& members) {
    bool all = true;
    for (std::size_t i = 0; i < choices_.size(); ++i)
      if (auto* held = std::exchange(choices_[i].held, nullptr))
        all = members[what_.chosen[i]]->oracle_.release(*held) && all;
    RC_ASSERT(real_.release().has_value() == all);
  }
  /// Releases, when the cache of one member has ended.
  void release_without(const caches& members, std::size_t ended) {
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      if (choices_[i].held == nullptr) continue;
      RC_ASSERT(real_[i].closed() == (what_.chosen[i] == ended));
      if (what_.chosen[i] == ended) choices_[i].held = nullptr;
    }
    release(members);
  }

  [[nodiscard]] bool knows_hits(const caches& members) const {
    return std::all_of(members.begin(), members.end(),
                       [&](const Side* one) { return one == nullptr || one->knows_hits(what_.memory, what_.need); });
  }

 private:
  struct choice {
    oracle::item* held = nullptr;
    oracle::outcome why{};
    bool first = false;
  };

  std::optional<local_oracle::choice> taken(const Side& of, std::size_t number) const {
    return number < real_.size() && real_[number] ? of.taken(&real_[number]) : std::nullopt;
  }
  bool find(const caches& members, std::size_t number) {
    auto* from = members[what_.chosen[number]];
    auto& one = choices_[number];
    if (from == nullptr || !from->oracle_.find(what_.memory, what_.need, taken(*from, number))) return false;
    one.held = from->oracle_.granted();
    return true;
  }
  void acquire_one(const caches& members, std::size_t number) {
    auto* from = members[what_.chosen[number]];
    auto& one = choices_[number];
    one.why = from == nullptr ? oracle::outcome(errc::closed)
                              : from->oracle_.acquire(what_.memory, what_.need, false, false, taken(*from, number));
    if (!one.why) one.held = from->oracle_.granted();
  }

  oracle::outcome expect(const caches& members, bool success) {
    const bool plain = !what_.may_fail() && what_.how.policy != set_policy::near_first;
    bool all = plain;
    for (std::size_t i = 0; plain && i < choices_.size(); ++i) all = find(members, i) && all;
    const auto refused = all ? oracle::outcome() : ask_tiers(members, plain);
    for (auto& one : choices_) one.first = one.held != nullptr;
    if (!refused || success) return refused;
    for (std::size_t i = 0; i < choices_.size(); ++i)
      if (auto* held = std::exchange(choices_[i].held, nullptr)) members[what_.chosen[i]]->oracle_.release(*held);
    return refused;
  }
  oracle::outcome ask_tiers(const caches& members, bool found) {
    const auto required = what_.how.required;
    if (what_.may_fail() && (required == 0 || required > choices_.size())) return errc::invalid_argument;
    std::size_t succeeded = 0;
    bool first = true;
    for (const auto& tier : what_.tiers()) {
      if (!std::exchange(first, false) && (!what_.may_fail() || succeeded >= required)) break;
      std::vector<std::size_t> missing;
      for (const auto i : tier)
        if (found ? choices_[i].held == nullptr : !find(members, i)) missing.push_back(i);
      for (const auto i : missing) {
        acquire_one(members, i);
        if (choices_[i].why && what_.how.policy == set_policy::fixed_order && !what_.may_fail()) break;
      }
      for (const auto i : tier) succeeded += choices_[i].why ? 0 : 1;
    }
    if (what_.may_fail() && succeeded >= required) return {};
    for (const auto& one : choices_)
      if (one.why) return one.why;
    return {};
  }
  // A lease that the set acquires late must be on the same memory as the first ones.
  void acquire_late(const caches& members, std::size_t number) {
    auto& one = choices_[number];
    acquire_one(members, number);
    if (one.held == nullptr) return;
    bool stale = false;
    for (std::size_t i = 0; i < choices_.size(); ++i) {
      if (!choices_[i].first || choices_[i].held == nullptr) continue;
      auto& at = members[what_.chosen[i]]->oracle_;
      if (at.find(what_.memory, what_.need, std::nullopt)) at.release(*at.granted());
      stale = stale || choices_[i].held->stale;
    }
    if (!stale) return;
    auto& own = members[what_.chosen[number]]->oracle_;
    own.invalidate(what_.memory);
    own.release(*std::exchange(one.held, nullptr));
    one.why = errc::stale_handle;
  }

  set_request what_;
  std::vector<choice> choices_;
  set_lease<registrar_type> real_;
};

}  // namespace pinfold::testing
