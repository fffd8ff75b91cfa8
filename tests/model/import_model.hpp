// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Random histories of an import cache, step by step against the oracle, over any driver:
///
///     struct world {
///       my_importer importer();
///       void start(import_oracle&, std::size_t capacity);  // begins a history; tells both sides the driver's rules
///       fake_handle allocate(std::uint32_t where, std::uint32_t size, std::list<fake_handle>& exported);
///       std::uint64_t kill(std::uint32_t which);            // returns the peer
///       const my_handle& handle(const fake_handle&);        // as the importer takes it
///       region gone(const step&, const fake_handle& near);  // what to invalidate, and the peer to drop
///       static constexpr int most_failures;                 // of opens or closes, in one step
///       static constexpr errc lasting_failure;              // of an open, which no room helps
///       void fail_opens(int count, errc), fail_closes(int count);
///       bool shows(const fake_handle&, std::size_t offset, const void* data);  // whether these are its bytes
///       void check(Cache&);  // the driver's counts, after every step
///       std::size_t open_count();                // in the driver
///     };
#pragma once

#include "model/cache_model.hpp"
#include "model/import_oracle.hpp"
#include "support/fixtures/interface.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace pinfold::testing {

struct region {
  std::uint64_t peer;
  range memory;
};

template <class World, class Interface>
using import_cache_of = typename Interface::template import_cache<decltype(std::declval<World&>().importer())>;

template <class World, class Interface = through_cpp>
class import_model : cache_model<import_cache_of<World, Interface>, import_oracle> {
  using base = cache_model<import_cache_of<World, Interface>, import_oracle>;
  using base::cache_, base::oracle_, base::leases_, base::same;

 public:
  using shape = import_history;

  import_model(World& world, const setup& as) : base(as.options, as.capacity, world.importer()), world_(world) {
    world_.start(oracle_, as.capacity);
    for (std::uint32_t i = 0; i < 6; ++i) allocate(i, i * 5);
  }

  void take(const step& s) {
    switch (s.what) {
      case kind::acquire: return acquire(handle(s.a), part(handle(s.a), s.b));
      case kind::find: return find(handle(s.a), part(handle(s.a), s.b));
      case kind::allocate: return allocate(s.a, s.b);
      case kind::invalidate: return invalidate(world_.gone(s, handle(s.a)));
      case kind::kill: return kill(s.a % 2);
      case kind::drop: return drop(world_.gone(s, handle(s.a)).peer);
      case kind::fail_opens:
        base::choose_open_failures(s, World::most_failures, World::lasting_failure);
        return world_.fail_opens(oracle_.failing_opens, oracle_.open_failure);
      case kind::fail_closes: return fail_closes(1 + static_cast<int>(s.a % World::most_failures));
      default: return base::take(s);
    }
  }

  void compare() {
    base::compare();
    world_.check(cache_);
    for (const auto& one : leases_) {
      const auto& of = one.item->handle;
      RC_ASSERT(world_.shows(of, one.part.begin - of.base, one.lease.data()));
    }
  }

  void finish() {
    world_.fail_opens(0, errc::driver_error);
    fail_closes(0);
    base::finish();
    RC_ASSERT(world_.open_count() == 0U);
  }

 private:
  // Recent handles are requested most often; old and dead ones still sometimes.
  const fake_handle& handle(std::uint32_t number) const {
    const auto recent = std::min<std::size_t>(handles_.size(), number % 8 == 0 ? handles_.size() : 8);
    return handles_[handles_.size() - 1 - number / 8 % recent];
  }
  static range part(const fake_handle& of, std::uint32_t number) {
    const auto begin = of.base + 8 * (number % (of.size / 8));
    return number % 3 == 0 ? of.allocation() : range{begin, begin + 8};
  }

  void acquire(const fake_handle& wanted, const range& where) {
    const auto expected = oracle_.acquire(wanted, where);
    base::acquired(where, expected,
                   cache_.acquire({wanted.exporter}, world_.handle(wanted), where.begin, where.size()));
  }
  void find(const fake_handle& wanted, const range& where) {
    const bool expected = oracle_.find(wanted, where);
    base::found(where, expected, cache_.find({wanted.exporter}, world_.handle(wanted), where.begin, where.size()));
  }
  void allocate(std::uint32_t where, std::uint32_t size) {
    handles_.push_back(world_.allocate(where, size, oracle_.exported));
    oracle_.exported.push_back(handles_.back());
  }
  void invalidate(const region& gone) {
    oracle_.invalidate(gone.memory, gone.peer);
    cache_.invalidate({gone.peer}, gone.memory);
  }
  void drop(std::uint64_t peer) { same(oracle_.drop(peer), cache_.drop_peer({peer})); }
  void kill(std::uint32_t which) {
    const auto peer = world_.kill(which);
    oracle_.exported.remove_if([&](auto& old) { return old.exporter == peer; });
  }
  void fail_closes(int count) {
    oracle_.failing_closes = count;
    world_.fail_closes(count);
  }

  World& world_;
  std::vector<fake_handle> handles_;
};

}  // namespace pinfold::testing
