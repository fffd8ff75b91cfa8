// SPDX-License-Identifier: BSD-3-Clause
// The rule that this importer shares with CUDA: it opens nothing twice, and nothing that overlaps. Also its closes.
#include "support/fixtures/memfd_test.hpp"

#include <sys/syscall.h>
#include <utility>

namespace pinfold::testing::memfd_overlap_test {
namespace {

class memfd_overlap : public memfd_pair {};

TEST_P(memfd_overlap, R6_a_second_open_is_refused_until_the_first_is_closed) {
  const auto handle = peer.allocate(32 * kib, 1);
  const auto made = reader.open(any_peer, handle);
  ASSERT_TRUE(made);
  expect_refused(reader, handle, errc::already_mapped, EBUSY);
  EXPECT_TRUE(holds_pattern(made->data, made->bytes, 1));
  ASSERT_TRUE(reader.close(made->registration));
  expect_round_trip(reader, handle, 1);
}

TEST_P(memfd_overlap, R6_a_buffer_regrown_at_the_same_base_conflicts_with_the_old_one) {
  const auto small = peer.allocate(32 * kib, 1, quiet_address);
  const auto old = reader.open(any_peer, small);
  ASSERT_TRUE(old);
  peer.free(small);
  const auto large = peer.allocate(64 * kib, 2, small.base);
  expect_refused(reader, large, errc::already_mapped, EBUSY);
  ASSERT_TRUE(reader.close(old->registration));
  expect_round_trip(reader, large, 2);
}

TEST_P(memfd_overlap, R6_conflict_that_begins_inside_the_new_allocation_is_found) {
  const auto upper = peer.allocate(4 * kib, 2, quiet_address + 32 * kib);
  const auto held = reader.open(any_peer, upper);
  ASSERT_TRUE(held);
  peer.free(upper);
  const auto again = peer.allocate(64 * kib, 3, quiet_address);
  expect_refused(reader, again, errc::already_mapped, EBUSY);
}

TEST_P(memfd_overlap, stale_or_invalid_handle_is_reported_before_a_conflict) {
  const auto handle = peer.allocate(32 * kib, 1);
  ASSERT_TRUE(reader.open(any_peer, handle));
  auto larger = handle;
  larger.size *= 2;
  expect_refused(reader, memfd::completed(larger), errc::invalid_range);
  peer.free(handle);
  EXPECT_EQ(reader.open(any_peer, handle).error(), errc::stale_handle);
}

TEST_P(memfd_overlap, neighbours_do_not_conflict) {
  const auto lower = peer.allocate(32 * kib, 2, quiet_address);
  const auto upper = peer.allocate(32 * kib, 3, quiet_address + 32 * kib);
  const auto one = reader.open(any_peer, lower);
  const auto two = reader.open(any_peer, upper);
  ASSERT_TRUE(one && two);
  EXPECT_TRUE(holds_pattern(one->data, one->bytes, 2));
  EXPECT_TRUE(holds_pattern(two->data, two->bytes, 3));
}

TEST_P(memfd_overlap, importers_do_not_conflict_with_each_other) {
  auto one = importer();
  auto two = importer();
  const auto handle = peer.allocate(4 * kib, 1);
  ASSERT_TRUE(one.open(any_peer, handle));
  expect_round_trip(two, handle, 1);
}

INSTANTIATE_TEST_SUITE_P(memfd, memfd_overlap, ::testing::Values(memfd_via::pidfd, memfd_via::scm), each_via::name);

TEST(memfd_close, a_mapping_that_is_not_open_is_refused_and_nothing_is_unmapped) {
  exporter_peer peer;
  memfd_importer reader({.via = memfd_via::pidfd});
  const auto made = reader.open(any_peer, peer.allocate(32 * kib, 1));
  ASSERT_TRUE(made);
  auto part = made->registration;
  part.bytes /= 2;
  EXPECT_EQ(reader.close(part).error(), errc::invalid_argument);
  EXPECT_TRUE(holds_pattern(made->data, made->bytes, 1));
  EXPECT_TRUE(reader.close(made->registration));
  EXPECT_EQ(reader.close(made->registration).error(), errc::invalid_argument);
  EXPECT_EQ(reader.close({}).error(), errc::invalid_argument);
}

TEST(memfd_close, R41_refused_unmap_is_an_error_and_keeps_the_mapping) {
#ifndef SYS_mseal
  constexpr long SYS_mseal = 462;
#endif
  exporter_peer peer;
  memfd_importer reader({.via = memfd_via::pidfd});
  const auto handle = peer.allocate(4 * kib, 1);
  const auto made = reader.open(any_peer, handle);
  ASSERT_TRUE(made);
  if (::syscall(SYS_mseal, made->data, made->bytes, 0) != 0) GTEST_SKIP() << "needs mseal(2) of Linux 6.10";
  for (int i = 0; i < 2; ++i) {
    const auto closed = reader.close(made->registration);
    ASSERT_FALSE(closed);
    EXPECT_EQ(closed.error(), errc::driver_error);
    EXPECT_EQ(closed.error().native, EPERM);
    EXPECT_EQ(reader.held(), 1U);
  }
  EXPECT_TRUE(holds_pattern(made->data, made->bytes, 1));
  expect_refused(reader, handle, errc::already_mapped, EBUSY);
}

TEST(memfd_close, R42_destroyed_importer_unmaps_its_open_mappings) {
  exporter_peer peer({.serve = true});
  const int mappings = memfd_mappings();
  const int descriptors = open_descriptors();
  {
    memfd_importer direct({.via = memfd_via::pidfd});
    memfd_importer served({.via = memfd_via::scm});
    for (std::uint32_t seed = 0; seed < 5; ++seed) {
      const auto handle = peer.allocate(4 * kib, seed);
      ASSERT_TRUE(direct.open(any_peer, handle) && served.open(any_peer, handle));
    }
    EXPECT_EQ(direct.held(), 5U);
    EXPECT_EQ(memfd_mappings(), mappings + 10);
    direct = std::move(served);
    EXPECT_EQ(memfd_mappings(), mappings + 5);
    EXPECT_EQ(served.open(any_peer, peer.allocate(4 * kib, 9)).error(),
              errc::closed);  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(served.held(), 0U);
  }
  EXPECT_EQ(memfd_mappings(), mappings);
  EXPECT_EQ(open_descriptors(), descriptors);
}

}  // namespace
}  // namespace pinfold::testing::memfd_overlap_test
