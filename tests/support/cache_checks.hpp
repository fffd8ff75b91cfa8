// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Conditions that every cache meets whenever no call is in progress.
#pragma once

#include "support/pretend_importer.hpp"

#include <pinfold/import_cache.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace pinfold::testing {

/// Expects the counters to agree with each other (R43).
inline void expect_counters_add_up(const statistics& now) {
  EXPECT_EQ(now.acquires, now.hits + now.misses + now.failed_acquires) << describe(now);
  EXPECT_EQ(now.opens, now.closes + now.open_now) << describe(now);
  EXPECT_GE(now.valid, now.hits) << describe(now);
  EXPECT_LE(now.quarantined, now.open_now) << describe(now);
  EXPECT_LE(now.bytes_now, now.bytes_most) << describe(now);
  EXPECT_LE(now.leases_now, now.leases_most) << describe(now);
}

/// A cache over a pretend world, as most tests need it.
template <importer I = pretend_importer>
struct pretend_fixture {
  std::shared_ptr<pretend_world> world = std::make_shared<pretend_world>();
  import_cache<I> cache;

  explicit pretend_fixture(cache_options options = {}) : cache(I(world), std::move(options)) {}
  ~pretend_fixture() { EXPECT_EQ(world->misuses, 0U); }
  pretend_fixture(const pretend_fixture&) = delete;
  pretend_fixture& operator=(const pretend_fixture&) = delete;

  auto acquire(const pretend_handle& handle) {
    return cache.acquire({handle.exporter}, handle, handle.base, handle.size);
  }
  auto find(const pretend_handle& handle) { return cache.find({handle.exporter}, handle, handle.base, handle.size); }

  /// Acquires, checks the bytes, releases.
  void touch(const pretend_handle& handle) {
    auto lease = acquire(handle);
    ASSERT_TRUE(lease) << describe(lease.error());
    EXPECT_EQ(serial_at(lease->data()), handle.serial);
  }

  void expect_sound() {
    const auto now = cache.statistics();
    expect_counters_add_up(now);
    EXPECT_EQ(now.open_now, world->open_now());
  }
};

}  // namespace pinfold::testing
