// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A real cache and its oracle, driven together: the steps that all caches have, and what is compared for all of them.
#pragma once

#include "model/history.hpp"
#include "model/oracle.hpp"

#include <rapidcheck.h>

#include <thread>
#include <utility>
#include <vector>

namespace pinfold::testing {

template <class Cache, class Oracle>
class cache_model {
 protected:
  struct leased {
    oracle::item* item;
    range part;  ///< what was requested
    typename Cache::lease lease;
  };

  template <class Backend>
  cache_model(const cache_options& options, std::size_t capacity, Backend backend)
      : oracle_(options, capacity), cache_(std::move(backend), options) {}

  void take(const step& s) {
    switch (s.what) {
      case kind::release: return release(s.a, false);
      case kind::release_elsewhere: return release(s.a, true);
      case kind::progress: return same(oracle_.progress(), cache_.progress());
      case kind::flush: return same(oracle_.flush(), cache_.flush());
      case kind::quiesce:
        if (s.a % 4 != 0) release_all();
        return quiesce();
      case kind::evict: {
        const auto most = s.a % 4;
        const auto expected = oracle_.evict(most);
        RC_ASSERT(cache_.evict(most) == expected);
        return;
      }
      default: RC_FAIL("this cache has no such step");
    }
  }
  void compare() {
    oracle::entries actual;
    for (const auto& e : cache_.dump())
      actual.emplace(e.peer.value, e.covered.begin, e.covered.end, e.state, e.leases, e.bypass);
    RC_ASSERT(actual == oracle_.listed());
    const auto now = cache_.statistics();
    RC_ASSERT(now.acquires == now.hits + now.misses + now.failed_acquires + oracle_.opening());
    RC_ASSERT(now.leases_now == oracle_.leased());
  }
  void quiesce() {
    const auto expected = oracle_.quiesce();
    const auto got = cache_.quiesce();
    RC_ASSERT(expected.has_value() == !got.has_value());
    if (expected) RC_ASSERT(got.error().code == *expected);
  }
  void release_all() {
    while (!leases_.empty()) release(0, false);
  }
  void finish() {
    release_all();
    RC_ASSERT(bool(cache_.flush()));
    RC_ASSERT(cache_.statistics().bytes_now == 0U);
    RC_ASSERT(cache_.statistics().bypass_bytes == 0U);
  }

  void choose_open_failures(const step& s, int most, errc lasting) {
    oracle_.failing_opens = 1 + static_cast<int>(s.a % static_cast<unsigned>(most));
    oracle_.open_failure = s.b % 2 == 0 ? lasting : errc::out_of_resources;
  }

  template <class Lease>
  void acquired(const range& part, const oracle::outcome& expected, Lease got) {
    RC_LOG() << "acquire: expected " << (expected ? name_of(*expected) : "success") << ", got "
             << (got ? "success" : describe(got.error())) << '\n';
    RC_ASSERT(expected.has_value() == !got.has_value());
    if (expected) RC_ASSERT(got.error().code == *expected);
    if (got) leases_.push_back({oracle_.granted(), part, std::move(*got)});
  }
  template <class Lease>
  void found(const range& part, bool expected, Lease got) {
    RC_ASSERT(got.has_value() == expected);
    if (got) leases_.push_back({oracle_.granted(), part, std::move(*got)});
  }
  void release(std::uint32_t number, bool elsewhere) {
    if (leases_.empty()) return;
    const auto at = leases_.begin() + number % static_cast<std::uint32_t>(leases_.size());
    auto taken = std::move(*at);
    leases_.erase(at);
    result<void> got;
    if (elsewhere) {
      std::jthread([&got, lease = std::move(taken.lease)]() mutable { got = lease.release(); }).join();
    } else {
      got = taken.lease.release();
    }
    same(oracle_.release(*taken.item), got);
  }
  static void same(bool expected, const result<void>& got) { RC_ASSERT(got.has_value() == expected); }

  Oracle oracle_;
  Cache cache_;
  std::vector<leased> leases_;
};

}  // namespace pinfold::testing
