// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A cache of local memory over a pretend device, as most tests need it.
#pragma once

#include "support/cache_checks.hpp"
#include "support/fake_registrar.hpp"

#include <pinfold/cache.hpp>

#include <gtest/gtest.h>

namespace pinfold::testing {

/// Returns the options with the monitor that lets a cache keep anything.
inline cache_options keeping(cache_options options = {}) {
  options.monitor = monitor_choice::manual;
  return options;
}

template <registrar R = fake_registrar>
struct local_fixture {
  std::shared_ptr<fake_device> device;
  pinfold::cache<R> cache;

  explicit local_fixture(cache_options options = {}, std::shared_ptr<fake_device> on = std::make_shared<fake_device>())
      : device(std::move(on)), cache(R(device), keeping(std::move(options))) {}
  ~local_fixture() { EXPECT_EQ(device->misuses, 0U); }
  local_fixture(const local_fixture&) = delete;
  local_fixture& operator=(const local_fixture&) = delete;

  auto acquire(std::uintptr_t begin, std::uintptr_t end, access_flags need = local_access, acquire_options how = {}) {
    return cache.acquire(reinterpret_cast<void*>(begin), end - begin, need, how);
  }
  bool cached(std::uintptr_t begin, std::uintptr_t end, access_flags need = local_access) {
    return cache.find(reinterpret_cast<void*>(begin), end - begin, need).has_value();
  }
  void invalidate(std::uintptr_t begin, std::uintptr_t end) {
    cache.invalidate(reinterpret_cast<void*>(begin), end - begin);
  }
  /// Acquires and releases.
  void touch(std::uintptr_t begin, std::uintptr_t end, access_flags need = local_access) {
    auto lease = acquire(begin, end, need);
    ASSERT_TRUE(lease) << describe(lease.error());
    const auto made = device->now().at(lease->registration().key);
    EXPECT_TRUE(made.memory.contains({begin, end}));
    EXPECT_TRUE(contains_all(made.access, need));
  }
  void expect_sound() {
    const auto now = cache.statistics();
    expect_counters_add_up(now);
    EXPECT_EQ(now.open, device->open_count());
  }
};

}  // namespace pinfold::testing
