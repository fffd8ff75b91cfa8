// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Short names and expectations for tests of GPU memory.
#pragma once

#include "support/cache_checks.hpp"
#include "support/cuda_peer.hpp"

#include <pinfold/import_cache.hpp>

#include <gtest/gtest.h>

namespace pinfold::testing {

inline constexpr peer_id any_peer{1};
inline constexpr std::size_t kib = 1024;
inline constexpr std::size_t segment = 2048 * kib;  ///< the smallest size that cuMemCreate makes

using cuda_cache = import_cache<cuda_ipc_importer>;

/// A fixture for GPU tests. Checks afterwards that nothing is open, and that nothing was closed twice or without having
/// been opened. Resets the emulation's rules.
class cuda_test : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!real_gpu()) emulation().reset();
  }
  void TearDown() override {
    const auto now = gpu().counters();
    EXPECT_EQ(now.double_closes, 0U);
    EXPECT_EQ(now.wrong_closes, 0U);
    EXPECT_EQ(now.live_mappings, 0U);
    EXPECT_EQ(now.opens, now.closes);
  }

  static auto acquire(cuda_cache& cache, const cuda_shared& of) {
    return cache.acquire(any_peer, of.handle, of.handle.base, of.handle.size);
  }

  /// Acquires, checks all bytes, releases.
  static void touch(cuda_cache& cache, const cuda_shared& of, std::uint32_t seed) {
    auto lease = acquire(cache, of);
    ASSERT_TRUE(lease) << describe(lease.error());
    EXPECT_TRUE(gpu().holds(lease->data(), of.handle.size, seed)) << "these are not the bytes of seed " << seed;
  }

  static void expect_refused(cuda_cache& cache, const cuda_shared& of, errc code, cuda::status native) {
    const auto refused = acquire(cache, of);
    ASSERT_FALSE(refused) << "opened, although " << name_of(code) << " was expected";
    EXPECT_EQ(refused.error(), code) << describe(refused.error());
    EXPECT_EQ(refused.error().native, static_cast<int>(native)) << describe(refused.error());
  }

  /// Returns whether the driver gave that address: the emulation always does, a GPU may not.
  static bool lies_at(const cuda_shared& memory, std::uint64_t address) {
    EXPECT_TRUE(real_gpu() || memory.handle.base == address);
    return memory.handle.base == address;
  }
};

/// A fixture with a process that has GPU memory.
class cuda_peer_test : public cuda_test {
 protected:
  /// Allocates a neighbour, so that freeing everything else does not give the driver's whole block back.
  cuda_peer::memory keep_block() { return peer.allocate(4 * kib, 99); }

  cuda_peer peer;
};

/// For tests of behaviour that no real driver shows on demand.
#define PINFOLD_EMULATION_ONLY() \
  if (real_gpu()) GTEST_SKIP() << "only the emulated driver can be told to do this"

}  // namespace pinfold::testing
