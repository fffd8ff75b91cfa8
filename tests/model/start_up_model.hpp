// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Random histories of two caches over one buffer, step by step against the oracle: tickets and restorations, whose
/// threads stop in the driver, sets of both caches, and ends of a cache in the middle of all that.
///
///     struct world {               // a `local_model`'s, and default-constructible: one for each cache
///     };
#pragma once

#include "model/set_model.hpp"

#include <array>
#include <list>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace pinfold::testing {

template <class World>
class start_up_model {
  using side = start_up_side<World>;
  using registrar_type = typename World::registrar_type;

 public:
  using shape = start_up_history;

  start_up_model(World&, const setup& as) : as_(as) {
    for (std::size_t i = 0; i < 2; ++i) make(i);
    moved_to_.emplace(std::move(moved_from_));
  }
  ~start_up_model() { gate_->open(); }
  start_up_model(const start_up_model&) = delete;
  start_up_model& operator=(const start_up_model&) = delete;

  void take(const step& s) {
    switch (s.what) {
      case kind::announce: return announce(sides_[0]->some_range(s.a));
      case kind::set: return acquire_set(s);
      case kind::late_member: return late_member(s);
      case kind::end: return end(s.a % 2);
      case kind::release:
        if (s.b % 4 == 1 && !sets_.empty()) return release_set(s.a % sets_.size());
        break;
      case kind::quiesce:
        if (s.a % 4 != 0) release_sets();
        break;
      default: break;
    }
    auto own = s;
    own.b /= 2;
    sides_[s.b % 2]->take(own);
  }
  void compare() {
    for (auto& one : sides_) one->compare();
    for (const auto& one : sets_) one.compare();
  }
  void finish() {
    release_sets();
    for (auto& one : sides_) one->finish();
  }

 private:
  void make(std::size_t number) {
    worlds_[number] = std::make_unique<World>();
    sides_[number] = std::make_unique<side>(*worlds_[number], as_, gate_);
  }
  [[nodiscard]] typename driven_set<side>::caches members() const {
    return {sides_[0].get(), sides_[1].get(), nullptr};
  }

  void announce(const range& memory) {
    for (auto& one : sides_) one->oracle_.invalidate(memory);
    announce_gone(side::at(memory), memory.size());
    for (auto& one : sides_)
      RC_ASSERT(!one->cache_.find(static_cast<void*>(nullptr), 1));  // any request makes a cache read the event log
  }

  void acquire_set(const step& s) {
    driven_set<side> made(set_request::of(s.a, s.b, sides_[0]->some_range(s.a / 7), sides_[0]->some_access(s.b / 5)));
    if (!made.knows_hits(members())) return;
    if (made.acquire(members(), moved_from_)) sets_.push_back(std::move(made));
  }
  void late_member(const step& s) {
    if (!sets_.empty()) set(s.a)->late(members(), s.b % 4, s.b / 4 % 2 == 0);
  }
  auto set(std::size_t number) { return std::next(sets_.begin(), static_cast<std::ptrdiff_t>(number % sets_.size())); }
  void release_set(std::size_t number) {
    set(number)->release(members());
    sets_.erase(set(number));
  }
  void release_sets() {
    while (!sets_.empty()) release_set(0);
  }

  // The leases read as closed. What is in the driver comes back after the end, and is closed at once.
  void end(std::size_t number) {
    auto left = sides_[number]->leave();
    sides_[number].reset();
    RC_ASSERT(left.device->open_count() == 0U);
    for (auto& one : left.leases) RC_ASSERT(one.lease.closed());
    for (auto& one : left.large)
      for (std::size_t i = 0; i < one.real.pieces(); ++i) RC_ASSERT(one.real.piece(i).held.closed());
    for (auto& one : sets_) one.release_without(members(), number);
    sets_.clear();
    for (auto& one : left.tickets) end_ticket(one);
    if (left.restoring && left.restoring->at != nullptr)
      RC_ASSERT(gate_->go_on(left.restoring->at, [&] { return left.restoring->real.done(); }) == nullptr);
    RC_ASSERT(left.device->open_count() == 0U);
    RC_ASSERT(left.device->misuses == 0U);
    make(number);
  }
  void end_ticket(driven_ticket<registrar_type>& one) {
    if (one.real) {
      RC_ASSERT(one.real->renew().error().code == errc::closed);
      RC_ASSERT(one.real->take().error().code == errc::closed);
    }
    if (one.at != nullptr) RC_ASSERT(gate_->go_on(one.at, [&] { return one.idle(); }) == nullptr);
    one.real.reset();
    while (!one.gone->load()) std::this_thread::yield();
  }

  setup as_;
  std::shared_ptr<worker_gate> gate_ = std::make_shared<worker_gate>();
  std::array<std::unique_ptr<World>, 2> worlds_;
  cache<registrar_type> moved_from_{World().registrar()};
  std::optional<cache<registrar_type>> moved_to_;
  std::array<std::unique_ptr<side>, 2> sides_;
  std::list<driven_set<side>> sets_;
};

}  // namespace pinfold::testing
