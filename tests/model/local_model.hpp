// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Random histories of a cache of local memory, step by step against the oracle, over any registrar:
///
///     struct world {               // one for each history
///       using registrar_type = my_registrar;
///       std::shared_ptr<fake_device> device;   // notes what is registered, and refuses what a history says
///       std::uintptr_t begin, unit;               // where 2 000 units of memory are; registered to the unit
///       registrar_type registrar();
///       std::uint64_t number_of(const registrar_type::registration_type&);   // the device's
///       bool sound();                             // whether the driver has what the device noted
///       static constexpr std::uint32_t shards;    // optional: more than one
///     };
///
/// The oracle has one clock and one queue of closes, so with several shards nothing runs short, no close fails, and
/// both sides do what is due after every step.
#pragma once

#include "model/agreement.hpp"
#include "model/cache_model.hpp"
#include "model/local_oracle.hpp"
#include "support/fixtures/interface.hpp"
#include "support/fixtures/local_fixture.hpp"

#include <pinfold/monitors/announce.hpp>

#include <memory>
#include <optional>
#include <vector>

namespace pinfold::testing {

template <class World, class Interface = through_cpp>
class local_model
    : protected cache_model<typename Interface::template cache<typename World::registrar_type>, local_oracle> {
  using base = cache_model<typename Interface::template cache<typename World::registrar_type>, local_oracle>;

 protected:
  using base::cache_, base::oracle_, base::leases_, base::same;

 public:
  using shape = local_history;

  local_model(World& world, const setup& given) : local_model(world, possible(given), std::nullopt) {}

 protected:
  static constexpr bool spread = requires { World::shards; };

  static setup possible(setup as) {
    if constexpr (spread) {
      as.options.max_bytes = as.options.max_count = unlimited;
      as.capacity = SIZE_MAX;
    }
    return as;
  }

  local_model(World& world, const setup& as, std::nullopt_t)
      : base(options(world, as), as.capacity, world.registrar()),
        world_(world),
        every_right_(static_cast<std::uint32_t>(cache_.backend().limits().supported)),
        limited_(as.options.max_bytes != unlimited || as.options.max_count != unlimited || as.capacity != SIZE_MAX),
        merges_(as.options.merge != merge_policy::none) {
    world_.device->capacity = as.capacity;
    inject();
  }

 public:
  void take(const step& s) {
    if (spread && s.what == kind::fail_closes) return;
    take_one(s);
    if (spread) same(oracle_.progress(), cache_.progress());
  }

  void compare() {
    base::compare();
    auto expected_access = oracle_.registered();
    decltype(expected_access) access;
    for (const auto& [key, one] : world_.device->now()) access.emplace(one.memory.begin, one.memory.end, one.access);
    RC_ASSERT(access == expected_access);
    compare_counters();
    for (const auto& one : leases_) RC_ASSERT(one.lease.stale() == one.item->stale);
    RC_ASSERT(world_.sound());
  }

  void finish() {
    failing_opens_ = oracle_.failing_opens = 0;
    fail_closes(0);
    base::release_all();
    oracle_.unpersist({0, UINTPTR_MAX});
    cache_.unpersist(nullptr, UINTPTR_MAX);
    base::finish();
    RC_ASSERT(world_.device->open_count() == 0U);
    RC_ASSERT(world_.device->misuses == 0U);
    RC_ASSERT(world_.sound());
  }

 protected:
  void compare_counters() const {
    const auto now = cache_.statistics();
    const auto& done = oracle_.done();
    RC_ASSERT(now.bytes_now == oracle_.bytes(false));
    RC_ASSERT(now.bypass_bytes == oracle_.bytes(true));
    RC_ASSERT(now.quarantined == oracle_.quarantined());
    RC_ASSERT(now.open == world_.device->open_count());
    RC_ASSERT(now.opens == done.opens);
    RC_ASSERT(now.closes == done.closes);
    RC_ASSERT(now.failed_opens == done.failed_opens);
    RC_ASSERT(now.failed_closes == done.failed_closes);
    if (!spread) RC_ASSERT(now.evicted == done.evicted);
  }

  // When the driver is out of resources, the cache closes an entry: another one than the oracle, with several shards.
  static step with_lasting_failure(step s) {
    s.b &= ~1U;
    return s;
  }

  void take_one(const step& s) {
    const auto memory = some_range(s.a);
    const auto need = static_cast<access_flags>(1 + s.b % every_right_);
    switch (s.what) {
      case kind::acquire: return acquire(memory, need, {});
      case kind::persistent: return acquire(memory, need, {.persistent = true});
      case kind::bypass: return acquire(memory, need, {.bypass = true});
      case kind::batch: return batch(s.a, s.b, need);
      case kind::find: return find(memory, need);
      case kind::invalidate: oracle_.invalidate(memory); return cache_.invalidate(at(memory), memory.size());
      case kind::announce:
        oracle_.invalidate(memory);
        announce_gone(at(memory), memory.size());
        RC_ASSERT(!cache_.find(static_cast<void*>(nullptr), 1));  // any request makes the cache read the event log
        return;
      case kind::unpersist: oracle_.unpersist(memory); return cache_.unpersist(at(memory), memory.size());
      case kind::fail_opens:
        base::choose_open_failures(spread ? with_lasting_failure(s) : s, 3, errc::driver_error);
        failing_opens_ = oracle_.failing_opens;
        open_failure_ = oracle_.open_failure;
        return;
      case kind::fail_closes: return fail_closes(1 + static_cast<int>(s.a % 3));
      case kind::evict: return spread ? void() : base::take(s);
      case kind::restore: return restore();
      case kind::refuse_unions: oracle_.refuse_unions = refuse_unions_ = !refuse_unions_; return;
      default: return base::take(s);
    }
  }

  static cache_options options(const World& world, const setup& as) {
    auto made = keeping(as.options);
    made.shards = 1;
    if constexpr (spread) made.shards = World::shards;
    for (auto* const bytes : {&made.max_bytes, &made.merge_limit})
      if (*bytes != unlimited) *bytes *= world.unit;
    return made;
  }
  [[nodiscard]] range units(std::uintptr_t first, std::uintptr_t count) const {
    const auto begin = world_.begin + first * world_.unit;
    return {begin, begin + count * world_.unit};
  }
  [[nodiscard]] range some_range(std::uint32_t number) const {
    constexpr std::uintptr_t lengths[] = {1, 8, 32, 64};
    return units(16 + number % 96, lengths[number / 96 % 4]);
  }
  static void* at(const range& memory) { return reinterpret_cast<void*>(memory.begin); }

  void acquire(const range& memory, access_flags need, const acquire_options& how) {
    auto got = cache_.acquire(at(memory), memory.size(), need, how);
    const auto expected = oracle_.acquire(memory, need, how.persistent, how.bypass, taken(got));
    base::acquired(memory, expected, std::move(got));
  }
  void find(const range& memory, access_flags need) {
    auto got = cache_.find(at(memory), memory.size(), need);
    const bool expected = oracle_.find(memory, need, taken(got));
    base::found(memory, expected, std::move(got));
  }

  /// Returns the registration that the lease is on.
  template <class Lease>
  std::optional<local_oracle::choice> taken(const Lease& got) const {
    if (!got) return std::nullopt;
    const auto one = world_.device->now().at(world_.number_of(got->registration()));
    return local_oracle::choice{one.memory, one.access};
  }

  // A batch does the same as single requests, but may close due entries later and in another order. So the model tries
  // batches only where nothing runs short, and compares when all due closes are done.
  void batch(std::uint32_t a, std::uint32_t b, access_flags need) {
    if (limited_ || merges_ || failing_opens_ > 0 || oracle_.failing_closes > 0 || refuse_unions_) return;
    std::vector<range> ranges;
    for (std::uint32_t i = 0; i <= a % 5; ++i) ranges.push_back(units(1000 + 100 * i, 16 + b % 16));
    auto got = cache_.acquire_batch(ranges, need, {.workers = 1});
    std::vector<oracle::item*> items;
    oracle::outcome expected;
    for (std::size_t i = 0; i < ranges.size() && !expected; ++i) {
      expected = oracle_.acquire(ranges[i], need, false, false, got ? taken(&(*got)[i]) : std::nullopt);
      if (!expected) items.push_back(oracle_.granted());
    }
    RC_ASSERT(expected.has_value() == !got.has_value());
    got = {};
    for (auto* item : items) oracle_.release(*item);
    same(oracle_.progress(), cache_.progress());
  }

  // The order in which registrations are restored depends on the time, so the model restores where nothing runs short
  // and the order does not matter, and compares what is left when everything idle is closed. `start_up_model` has the
  // rest.
  void restore() {
    if (limited_ || merges_ || failing_opens_ > 0 || oracle_.failing_closes > 0 || refuse_unions_) return;
    for (const auto& one : oracle_.quiesced())
      for (const auto& other : oracle_.quiesced())
        if (&one != &other && one.memory.overlaps(other.memory)) return;
    auto begun = cache_.restore({.workers = 1});
    RC_ASSERT(begun.has_value());
    begun->wait();
    const auto total = oracle_.quiesced().size();
    std::size_t failed = 0;
    while (const auto one = oracle_.take_hottest()) {
      RC_ASSERT(!oracle_.acquire(one->wanted, one->need, one->persistent, false, std::nullopt));
      if (!oracle_.release(*oracle_.granted())) ++failed;
    }
    const auto now = begun->progress();
    RC_ASSERT(now.total == total);
    RC_ASSERT(now.restored == total - failed);
    RC_ASSERT(now.failed == failed);
    same(oracle_.progress(), cache_.progress());
    base::compare();
    same(oracle_.flush(), cache_.flush());
  }

  void inject() {
    world_.device->fail_opens([this](const range&, access_flags access) -> std::optional<error> {
      if (failing_opens_ > 0) {
        --failing_opens_;
        return error{open_failure_, native_kind::posix, 5, "injected"};
      }
      if (refuse_unions_ && __builtin_popcount(static_cast<unsigned>(access)) > 3)
        return error{errc::driver_error, native_kind::posix, 22, "too many rights"};
      return std::nullopt;
    });
  }
  void fail_closes(int count) {
    oracle_.failing_closes = count;
    world_.device->fail_closes(count);
  }

  World& world_;
  std::uint32_t every_right_;
  bool limited_;
  bool merges_;  // whether the order of a batch's ranges matters
  int failing_opens_ = 0;
  errc open_failure_ = errc::driver_error;
  bool refuse_unions_ = false;
};

}  // namespace pinfold::testing
