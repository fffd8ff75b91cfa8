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
///     };
#pragma once

#include "model/agreement.hpp"
#include "model/local_history.hpp"
#include "model/local_oracle.hpp"

#include <pinfold/monitors/announce.hpp>

#include <cstdio>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace pinfold::testing {

template <class World>
class local_model {
 public:
  local_model(World& world, const local_setup& as)
      : world_(world),
        oracle_(options(as), as.capacity),
        cache_(world.registrar(), keeping(options(as))),
        every_right_(static_cast<std::uint32_t>(cache_.backend().limits().supported)),
        limited_(as.options.max_bytes != unlimited || as.options.max_count != unlimited || as.capacity != SIZE_MAX) {
    world_.device->capacity = as.capacity;
    inject();
  }

  void take(const local_step& s) {
    const auto memory = some_range(s.a);
    const auto need = static_cast<access_flags>(1 + s.b % every_right_);
    switch (s.what) {
      case local_kind::acquire: return acquire(memory, need, {});
      case local_kind::persistent: return acquire(memory, need, {.persistent = true});
      case local_kind::bypass: return acquire(memory, need, {.bypass = true});
      case local_kind::batch: return batch(s.a, s.b, need);
      case local_kind::release: return release(s.a, false);
      case local_kind::release_elsewhere: return release(s.a, true);
      case local_kind::find: return find(memory, need);
      case local_kind::invalidate: oracle_.invalidate(memory); return cache_.invalidate(at(memory), memory.size());
      case local_kind::announce:
        oracle_.invalidate(memory);
        announce_gone(at(memory), memory.size());
        RC_ASSERT(!cache_.find(static_cast<void*>(nullptr), 1));  // any request makes the cache read the event log
        return;
      case local_kind::unpersist: oracle_.unpersist(memory); return cache_.unpersist(at(memory), memory.size());
      case local_kind::fail_opens:
        oracle_.failing_opens = failing_opens_ = 1 + static_cast<int>(s.a % 3);
        oracle_.open_failure = open_failure_ = s.b % 2 == 0 ? errc::driver_error : errc::out_of_resources;
        return;
      case local_kind::fail_closes: return fail_closes(1 + static_cast<int>(s.a % 3));
      case local_kind::refuse_unions: oracle_.refuse_unions = refuse_unions_ = !refuse_unions_; return;
      case local_kind::progress: return same(oracle_.progress(), cache_.progress());
      case local_kind::flush: return same(oracle_.flush(), cache_.flush());
    }
  }

  void compare() {
    auto expected = oracle_.listed();
    decltype(expected) actual;
    for (const auto& e : cache_.dump()) actual.emplace(e.covered.begin, e.covered.end, e.state, e.leases, e.bypass);
    RC_ASSERT(actual == expected);
    auto expected_access = oracle_.registered();
    decltype(expected_access) access;
    for (const auto& [key, one] : world_.device->now()) access.emplace(one.memory.begin, one.memory.end, one.access);
    RC_ASSERT(access == expected_access);
    const auto now = cache_.statistics();
    RC_ASSERT(now.acquires == now.hits + now.misses + now.failed_acquires);
    RC_ASSERT(now.leases_now == leases_.size());
    for (const auto& [of, held] : leases_) RC_ASSERT(held.stale() == of->stale);
    RC_ASSERT(world_.sound());
  }

  void finish() {
    failing_opens_ = oracle_.failing_opens = 0;
    fail_closes(0);
    while (!leases_.empty()) release(0, false);
    oracle_.unpersist({0, UINTPTR_MAX});
    cache_.unpersist(nullptr, UINTPTR_MAX);
    RC_ASSERT(bool(cache_.flush()));
    RC_ASSERT(world_.device->open_count() == 0U);
    RC_ASSERT(world_.device->misuses == 0U);
    RC_ASSERT(world_.sound());
    RC_ASSERT(cache_.statistics().bytes_now == 0U);
    RC_ASSERT(cache_.statistics().bypass_bytes == 0U);
  }

 private:
  using cache_type = pinfold::cache<typename World::registrar_type>;
  using held_lease = typename cache_type::lease;

  [[nodiscard]] cache_options options(const local_setup& as) const {
    auto made = as.options;
    if (made.max_bytes != unlimited) made.max_bytes *= world_.unit;
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
    local_oracle::item* item = nullptr;
    const auto expected = oracle_.acquire(memory, need, how.persistent, how.bypass, item, taken(got));
    RC_LOG() << "acquire: expected " << (expected ? name_of(*expected) : "success") << ", got "
             << (got ? "success" : name_of(got.error().code)) << '\n';
    RC_ASSERT(expected.has_value() == !got.has_value());
    if (expected) RC_ASSERT(got.error().code == *expected);
    if (got) leases_.emplace_back(item, std::move(*got));
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
    if (limited_ || failing_opens_ > 0 || oracle_.failing_closes > 0 || refuse_unions_) return;
    std::vector<range> ranges;
    for (std::uint32_t i = 0; i <= a % 5; ++i) ranges.push_back(units(1000 + 100 * i, 16 + b % 16));
    auto got = cache_.acquire_batch(ranges, need, {.workers = 1});
    std::vector<local_oracle::item*> items(ranges.size());
    local_oracle::outcome expected;
    for (std::size_t i = 0; i < ranges.size() && !expected; ++i) {
      expected = oracle_.acquire(ranges[i], need, false, false, items[i], got ? taken(&(*got)[i]) : std::nullopt);
      if (expected) items[i] = nullptr;
    }
    RC_ASSERT(expected.has_value() == !got.has_value());
    got = {};
    for (auto* item : items)
      if (item != nullptr) oracle_.release(*item);
    same(oracle_.progress(), cache_.progress());
  }

  void find(const range& memory, access_flags need) {
    auto got = cache_.find(at(memory), memory.size(), need);
    auto* item = oracle_.find(memory, need, taken(got));
    RC_ASSERT(got.has_value() == (item != nullptr));
    if (got) leases_.emplace_back(item, std::move(*got));
  }

  void release(std::uint32_t number, bool elsewhere) {
    if (leases_.empty()) return;
    const auto at = leases_.begin() + number % static_cast<std::uint32_t>(leases_.size());
    auto [of, held] = std::move(*at);
    leases_.erase(at);
    result<void> got;
    if (elsewhere) {
      std::thread([&got, taken = std::move(held)]() mutable { got = taken.release(); }).join();
    } else {
      got = held.release();
    }
    same(oracle_.release(*of), got);
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
  static void same(bool expected, const result<void>& got) { RC_ASSERT(got.has_value() == expected); }

  World& world_;
  local_oracle oracle_;
  cache_type cache_;
  std::uint32_t every_right_;
  bool limited_;
  std::vector<std::pair<local_oracle::item*, held_lease>> leases_;
  int failing_opens_ = 0;
  errc open_failure_ = errc::driver_error;
  bool refuse_unions_ = false;
};

/// Checks random histories of about `steps` steps in all, each over a world of its own.
template <class MakeWorld>
void expect_local_agreement(std::uint64_t steps, MakeWorld make_world) {
  std::uint64_t done = 0;
  expect_agreement(steps, [&](const local_setup& as, const std::vector<local_step>& history) {
    auto world = make_world();
    local_model run(world, as);
    for (const auto& one : history) {
      run.take(one);
      run.compare();
      ++done;
    }
    run.finish();
  });
  std::printf("%llu steps\n", static_cast<unsigned long long>(done));
}

}  // namespace pinfold::testing
