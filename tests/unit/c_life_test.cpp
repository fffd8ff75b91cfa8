// SPDX-License-Identifier: BSD-3-Clause
// Caches of the C interface after their end, and in a child of fork.
#include "support/fixtures/c_fixture.hpp"
#include "support/processes/in_child.hpp"

#include <pinfold/pinfold.h>

#include <gtest/gtest.h>

#include <array>
#include <utility>

namespace pinfold::testing::c_life_test {
namespace {

TEST(c_life, destroyed_cache_is_closed) {
  c_fixture f;
  pinfold_cache* const ended = std::exchange(f.cache, nullptr);
  EXPECT_EQ(pinfold_destroy(ended), PINFOLD_OK);
  EXPECT_EQ(pinfold_acquire(ended, &f, 1, 1).pin, 0U);
  EXPECT_EQ(last_code(), PINFOLD_E_CLOSED);
  EXPECT_EQ(pinfold_flush(ended), PINFOLD_E_CLOSED);
  EXPECT_EQ(pinfold_destroy(ended), PINFOLD_E_CLOSED);
  std::array<char, 64> text{};
  EXPECT_GT(pinfold_monitors(ended, text.data(), text.size()), 0U);
}

TEST(c_life, R42_lease_that_outlives_its_cache_reads_as_closed) {
  auto options = c_options();
  options.drain_timeout_ms = 1;
  c_fixture f(options);
  const auto lease = f.acquire(0x1000, 0x2000);
  EXPECT_EQ(pinfold_destroy(std::exchange(f.cache, nullptr)), PINFOLD_OK);
  EXPECT_EQ(pinfold_is_closed(lease), 1);
  EXPECT_EQ(pinfold_release(lease), PINFOLD_OK);
}

TEST(c_life, child_of_fork_is_told_that_the_cache_is_its_parents) {
  c_fixture f;
  EXPECT_EQ(pinfold_release(f.acquire(0x1000, 0x2000)), PINFOLD_OK);
  run_in_child([&] {
    EXPECT_EQ(f.acquire(0x1000, 0x2000).pin, 0U);
    EXPECT_EQ(last_code(), PINFOLD_E_CLOSED);
    EXPECT_EQ(pinfold_invalidate(f.cache, &f, 1), PINFOLD_E_CLOSED);
    EXPECT_EQ(pinfold_flush(f.cache), PINFOLD_E_CLOSED);
    EXPECT_EQ(pinfold_destroy(f.cache), PINFOLD_OK) << "the child's copy";
  });
  EXPECT_TRUE(f.cached(0x1000, 0x2000));
}

}  // namespace
}  // namespace pinfold::testing::c_life_test
