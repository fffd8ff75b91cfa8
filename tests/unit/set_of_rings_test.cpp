// SPDX-License-Identifier: BSD-3-Clause
// A set of caches whose back ends accept one thread: io_uring rings with IORING_SETUP_SINGLE_ISSUER.
#include "support/doubles/test_ring.hpp"
#include "support/fixtures/local_fixture.hpp"

#include <pinfold/cache_set.hpp>

#include <array>
#include <cerrno>
#include <memory>
#include <system_error>
#include <vector>

namespace pinfold::testing::set_of_rings_test {
namespace {

struct set_of_rings : ::testing::Test {
  void SetUp() override {
    try {
      for (int i = 0; i < 3; ++i) {
        rings.push_back(std::make_unique<test_ring>(IORING_SETUP_SINGLE_ISSUER));
        auto registrar = io_uring_registrar::create(rings.back()->get());
        ASSERT_TRUE(registrar) << describe(registrar.error());
        each.push_back(std::make_unique<pinfold::cache<io_uring_registrar>>(std::move(*registrar), keeping()));
        caches.push_back(each.back().get());
      }
    } catch (const std::system_error& none) {
      GTEST_SKIP() << none.what();
    }
  }
  auto acquire(const set_options& how) {
    return cache_set<io_uring_registrar>(caches).acquire(memory.data(), memory.size(), local_access, how);
  }

  std::vector<std::unique_ptr<test_ring>> rings;
  std::vector<std::unique_ptr<pinfold::cache<io_uring_registrar>>> each;
  std::vector<pinfold::cache<io_uring_registrar>*> caches;
  std::vector<char> memory = std::vector<char>(1 << 16);
};

TEST_F(set_of_rings, fixed_order_registers_on_the_only_thread_that_may) {
  const auto got = acquire({.policy = set_policy::fixed_order});
  ASSERT_TRUE(got) << describe(got.error());
  EXPECT_EQ(got->registrations().size(), 3U);
}

TEST_F(set_of_rings, in_parallel_the_other_threads_are_refused) {
  const auto got = acquire({.required = 1});
  ASSERT_TRUE(got) << describe(got.error());
  EXPECT_EQ(got->registrations().size(), 1U) << "the first is registered on this thread";
  for (const auto& [member, why] : got->failures()) {
    EXPECT_EQ(why.code, errc::not_permitted);
    EXPECT_EQ(why.native, EEXIST);
  }
}

}  // namespace
}  // namespace pinfold::testing::set_of_rings_test
