// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The specification of a background registration with one worker, in its simplest form.
#pragma once

#include "model/local_oracle.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace pinfold::testing {

/// The pieces of a request, and their order.
struct ticket_plan {
  std::vector<range> pieces;       ///< by address
  std::vector<std::size_t> order;  ///< of their numbers
};

/// Joins ranges that overlap, and cuts them into pieces of `each` bytes.
inline ticket_plan plan_ticket(const std::vector<range>& ranges, std::size_t each, bool largest_first) {
  std::vector<std::pair<range, std::size_t>> all;  // with their places
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    std::pair<range, std::size_t> joined{ranges[i], i};
    for (auto one = all.begin(); one != all.end();) {
      if (!one->first.overlaps(joined.first)) {
        ++one;
        continue;
      }
      joined = {{std::min(one->first.begin, joined.first.begin), std::max(one->first.end, joined.first.end)},
                std::min(one->second, joined.second)};
      all.erase(one);
      one = all.begin();
    }
    all.push_back(joined);
  }
  std::sort(all.begin(), all.end(), [](auto& a, auto& b) { return a.first.begin < b.first.begin; });
  ticket_plan plan;
  std::vector<std::pair<std::size_t, std::size_t>> first;  // of each range: its first piece, and the one after its last
  for (const auto& [whole, place] : all) {
    first.emplace_back(plan.pieces.size(), 0);
    for (auto begin = whole.begin; begin < whole.end; begin += each)
      plan.pieces.push_back({begin, std::min(begin + each, whole.end)});
    first.back().second = plan.pieces.size();
  }
  std::vector<std::size_t> turns(all.size());
  for (std::size_t i = 0; i < all.size(); ++i) turns[i] = i;
  std::sort(turns.begin(), turns.end(), [&](std::size_t a, std::size_t b) {
    const auto size = [&](std::size_t i) { return largest_first ? all[i].first.size() : 0; };
    return std::pair(size(b), all[a].second) < std::pair(size(a), all[b].second);
  });
  for (const auto turn : turns)
    for (auto i = first[turn].first; i < first[turn].second; ++i) plan.order.push_back(i);
  return plan;
}

class ticket_oracle {
 public:
  using outcome = oracle::outcome;

  ticket_oracle(local_oracle& in, ticket_plan plan, access_flags need) : in_(&in), plan_(std::move(plan)), need_(need) {
    held_.resize(plan_.pieces.size());
  }

  /// Runs the worker until it asks the driver, or ends. `learn(range)` returns the entry that the real one hit there,
  /// where several serve the request.
  template <class Learn>
  void run(Learn&& learn) {
    running_ = true;
    if (opening_ != nullptr) {
      const auto end = in_->end_open(*opening_);
      if (end == local_oracle::answer::asked_again) return;
      opening_ = nullptr;
      keep(end == local_oracle::answer::refused ? outcome(in_->refusal()) : outcome());
    }
    while (const auto number = next_piece()) {
      taken_ = *number;
      const range& where = plan_.pieces[*number];
      const auto begun = in_->begin_acquire({where, need_}, learn(where));
      opening_ = begun.opening;
      if (opening_ != nullptr) return;
      keep(begun.refused);
    }
    running_ = false;
  }

  [[nodiscard]] bool running() const noexcept { return running_; }
  [[nodiscard]] bool in_driver() const noexcept { return opening_ != nullptr; }
  [[nodiscard]] const ticket_plan& plan() const noexcept { return plan_; }
  [[nodiscard]] bool taken() const noexcept { return all_taken_; }
  [[nodiscard]] const std::optional<std::pair<errc, range>>& failure() const noexcept { return failure_; }
  [[nodiscard]] std::size_t pieces_done() const {
    return static_cast<std::size_t>(
        std::count_if(held_.begin(), held_.end(), [](auto* one) { return one != nullptr; }));
  }
  [[nodiscard]] std::size_t bytes(bool done) const {
    std::size_t sum = 0;
    for (std::size_t i = 0; i < held_.size(); ++i)
      if (!done || held_[i] != nullptr) sum += plan_.pieces[i].size();
    return sum;
  }
  [[nodiscard]] std::uintptr_t ready_up_to() const {
    auto end = plan_.pieces.front().begin;
    for (std::size_t i = 0; i < held_.size() && held_[i] != nullptr && plan_.pieces[i].begin == end; ++i)
      end = plan_.pieces[i].end;
    return end;
  }
  [[nodiscard]] std::uintptr_t first_gap() const {
    auto end = plan_.pieces.front().begin;
    for (std::size_t i = 0; i < held_.size() && plan_.pieces[i].begin == end; ++i) end = plan_.pieces[i].end;
    return end;
  }
  [[nodiscard]] std::vector<range> stale() const {
    std::vector<range> all;
    for (std::size_t i = 0; i < held_.size(); ++i)
      if (held_[i] != nullptr && held_[i]->stale) all.push_back(plan_.pieces[i]);
    return all;
  }
  [[nodiscard]] outcome waited() const {
    if (running_) return errc::timed_out;
    return so_far();
  }
  [[nodiscard]] outcome waited_until_ready(std::uintptr_t end) const {
    if (end > first_gap()) return errc::invalid_range;
    if (ready_up_to() >= end) return {};
    return running_ && !stops() ? errc::timed_out : so_far();
  }
  /// Returns what `ready` says, and the parts of the range with their registrations.
  outcome ready(const range& where, std::vector<std::pair<range, oracle::item*>>& parts) const {
    auto from = where.begin;
    for (std::size_t i = 0; i < held_.size() && from < where.end; ++i) {
      const auto& piece = plan_.pieces[i];
      if (piece.end <= from) continue;
      if (piece.begin > from) return errc::invalid_range;
      if (const auto bad = unusable(i)) return bad;
      parts.emplace_back(range{from, std::min(piece.end, where.end)}, held_[i]);
      from = piece.end;
    }
    return from < where.end ? outcome(errc::invalid_range) : outcome();
  }

  /// Returns false if a close failed.
  bool cancel(bool give_back) {
    cancelled_ = true;
    given_back_ = give_back;
    bool all = true;
    for (auto*& one : held_)
      if (give_back && one != nullptr) all = in_->release(*std::exchange(one, nullptr)) && all;
    return all;
  }
  /// Returns whether a new worker starts.
  bool renew() {
    for (auto*& one : held_)
      if (one != nullptr && one->stale) in_->release(*std::exchange(one, nullptr));
    failure_.reset();
    cancelled_ = given_back_ = false;
    next_ = 0;
    return !running_ && pieces_done() < held_.size();
  }
  /// Moves the leases into `parts`.
  outcome take(std::vector<std::pair<range, oracle::item*>>& parts) {
    if (const auto unfinished = waited()) return unfinished;
    if (!stale().empty()) return errc::stale_handle;
    for (std::size_t i = 0; i < held_.size(); ++i)
      parts.emplace_back(plan_.pieces[i], std::exchange(held_[i], nullptr));
    all_taken_ = true;
    return {};
  }

 private:
  [[nodiscard]] bool stops() const { return cancelled_ || failure_.has_value(); }
  std::optional<std::size_t> next_piece() {
    for (; !stops() && next_ < plan_.order.size(); ++next_)
      if (held_[plan_.order[next_]] == nullptr) return plan_.order[next_++];
    return std::nullopt;
  }
  void keep(outcome refused) {
    if (refused) {
      next_ = 0;
      if (!failure_) failure_ = {*refused, plan_.pieces[taken_]};
    } else if (given_back_) {
      in_->release(*in_->granted());
    } else {
      held_[taken_] = in_->granted();
    }
  }
  [[nodiscard]] outcome so_far() const {
    if (failure_) return failure_->first;
    if (pieces_done() == held_.size()) return {};
    return cancelled_ ? errc::closed : errc::timed_out;
  }
  [[nodiscard]] outcome unusable(std::size_t number) const {
    if (held_[number] != nullptr) return held_[number]->stale ? outcome(errc::stale_handle) : outcome();
    if (failure_ && failure_->second == plan_.pieces[number]) return failure_->first;
    return cancelled_ ? errc::closed : errc::timed_out;
  }

  local_oracle* in_;
  ticket_plan plan_;
  access_flags need_;
  std::vector<oracle::item*> held_;  // of each piece; null while it is not done
  std::size_t next_ = 0;
  std::size_t taken_ = 0;
  oracle::item* opening_ = nullptr;
  std::optional<std::pair<errc, range>> failure_;
  bool running_ = false, cancelled_ = false, given_back_ = false, all_taken_ = false;
};

}  // namespace pinfold::testing
