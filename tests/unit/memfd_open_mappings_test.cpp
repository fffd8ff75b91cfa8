// SPDX-License-Identifier: BSD-3-Clause
#include "importers/memfd/open_mappings.hpp"

#include <gtest/gtest.h>

#include <cerrno>

namespace memfd_open_mappings_test {
namespace {

using pinfold::errc;
using pinfold::range;
using pinfold::memfd::open_mappings;
using mapping = open_mappings::mapping;

char memory[8];

mapping hold(open_mappings& table, std::uint64_t exporter, range where) {
  EXPECT_TRUE(table.reserve(exporter, where));
  const mapping made{memory, where.size(), exporter, where.begin};
  table.publish(made);
  return made;
}

TEST(memfd_open_mappings, R6_every_kind_of_overlap_is_refused) {
  open_mappings table;
  hold(table, 1, {0x4000, 0x8000});
  for (const range wanted : {range{0x4000, 0x8000}, range{0x3000, 0x5000}, range{0x7000, 0x9000}, range{0x5000, 0x6000},
                             range{0x3000, 0x9000}, range{0x4000, 0x5000}}) {
    const auto refused = table.reserve(1, wanted);
    ASSERT_FALSE(refused) << std::hex << wanted.begin;
    EXPECT_EQ(refused.error(), errc::already_mapped);
    EXPECT_EQ(refused.error().native, EBUSY);
  }
  EXPECT_EQ(table.size(), 1U);
}

TEST(memfd_open_mappings, neighbours_and_other_exporters_do_not_overlap) {
  open_mappings table;
  hold(table, 2, {0x4000, 0x8000});
  EXPECT_TRUE(table.reserve(2, {0x3000, 0x4000}));
  EXPECT_TRUE(table.reserve(2, {0x8000, 0x9000}));
  EXPECT_TRUE(table.reserve(1, {0x0000, 0x9000}));
  EXPECT_TRUE(table.reserve(3, {0x0000, 0x9000}));
}

TEST(memfd_open_mappings, mapping_that_is_being_opened_conflicts_but_cannot_be_closed) {
  open_mappings table;
  ASSERT_TRUE(table.reserve(1, {0x1000, 0x2000}));
  EXPECT_EQ(table.reserve(1, {0x1000, 0x2000}).error(), errc::already_mapped);
  EXPECT_EQ(table.begin_close({nullptr, 0x1000, 1, 0x1000}).error(), errc::invalid_argument);
  table.remove(1, 0x1000);
  EXPECT_TRUE(table.reserve(1, {0x1000, 0x2000}));
}

TEST(memfd_open_mappings, R9_mapping_that_is_being_closed_conflicts_and_has_one_closer) {
  open_mappings table;
  const mapping made = hold(table, 1, {0x1000, 0x2000});
  ASSERT_TRUE(table.begin_close(made));
  EXPECT_EQ(table.begin_close(made).error(), errc::invalid_argument);
  EXPECT_EQ(table.reserve(1, {0x1000, 0x2000}).error(), errc::already_mapped);
  table.undo_close(made);
  ASSERT_TRUE(table.begin_close(made));
  table.remove(made.exporter, made.base);
  EXPECT_EQ(table.size(), 0U);
  EXPECT_EQ(table.begin_close(made).error(), errc::invalid_argument);
}

TEST(memfd_open_mappings, only_the_exact_mapping_can_be_closed) {
  open_mappings table;
  const mapping made = hold(table, 1, {0x1000, 0x2000});
  for (const mapping& other : {mapping{memory + 1, 0x1000, 1, 0x1000}, mapping{memory, 0x2000, 1, 0x1000},
                               mapping{memory, 0x1000, 2, 0x1000}, mapping{memory, 0x1000, 1, 0x2000}}) {
    EXPECT_EQ(table.begin_close(other).error(), errc::invalid_argument);
  }
  EXPECT_TRUE(table.begin_close(made));
}

}  // namespace
}  // namespace memfd_open_mappings_test
