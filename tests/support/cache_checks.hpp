// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Conditions that every cache meets whenever no call is in progress.
#pragma once

#include "support/fake_importer.hpp"

#include <pinfold/import_cache.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace pinfold::testing {

/// Expects the counters to agree with each other (R43).
inline void expect_counters_add_up(const statistics& now) {
  EXPECT_EQ(now.acquires, now.hits + now.misses + now.failed_acquires) << describe(now);
  EXPECT_EQ(now.opens, now.closes + now.open) << describe(now);
  EXPECT_GE(now.valid, now.hits) << describe(now);
  EXPECT_LE(now.quarantined, now.open) << describe(now);
  EXPECT_LE(now.bytes_now, now.peak_bytes) << describe(now);
  EXPECT_LE(now.leases_now, now.peak_leases) << describe(now);
}

/// A cache over a pretend world, as most tests need it.
template <importer I = fake_importer>
struct fake_fixture {
  std::shared_ptr<fake_world> world = std::make_shared<fake_world>();
  import_cache<I> cache;

  explicit fake_fixture(cache_options options = {}) : cache(I(world), std::move(options)) {}
  ~fake_fixture() { EXPECT_EQ(world->misuses, 0U); }
  fake_fixture(const fake_fixture&) = delete;
  fake_fixture& operator=(const fake_fixture&) = delete;

  auto acquire(const fake_handle& handle) { return cache.acquire({handle.exporter}, handle, handle.base, handle.size); }
  auto find(const fake_handle& handle) { return cache.find({handle.exporter}, handle, handle.base, handle.size); }

  /// Acquires, checks the bytes, releases.
  void touch(const fake_handle& handle) {
    auto lease = acquire(handle);
    ASSERT_TRUE(lease) << describe(lease.error());
    EXPECT_EQ(serial_at(lease->data()), handle.serial);
  }

  void expect_sound() {
    const auto now = cache.statistics();
    expect_counters_add_up(now);
    EXPECT_EQ(now.open, world->open_count());
  }
};

}  // namespace pinfold::testing
