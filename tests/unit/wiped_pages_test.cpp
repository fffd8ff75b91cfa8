// SPDX-License-Identifier: BSD-3-Clause
// Objects that a child of fork(2) finds empty.
#include "os/wiped_pages.hpp"

#include "support/processes/in_child.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace pinfold::os::wiped_pages_test {
namespace {

struct counters {
  std::array<std::atomic<std::uint64_t>, 1U << 17U> all{};
};
std::atomic<counters*> made{nullptr};

TEST(wiped_object, takes_memory_only_for_what_is_used) {
  counters* const here = wiped_object(made);
  ASSERT_NE(here, nullptr);
  here->all[0] = 1;
  std::vector<unsigned char> present(sizeof(counters) / static_cast<std::size_t>(::getpagesize()));
  ASSERT_EQ(::mincore(here, sizeof(counters), present.data()), 0);
  EXPECT_EQ(std::count_if(present.begin(), present.end(), [](unsigned char one) { return (one & 1U) != 0; }), 1);
}

TEST(wiped_object, is_empty_in_a_child) {
  wiped_object(made)->all[5] = 7;
  testing::run_in_child([] { EXPECT_EQ(wiped_object(made)->all[5], 0U); });
  EXPECT_EQ(wiped_object(made)->all[5], 7U);
}

}  // namespace
}  // namespace pinfold::os::wiped_pages_test
