// SPDX-License-Identifier: BSD-3-Clause
// One process writes, and another one reads exactly that.
#include "support/fixtures/memfd_test.hpp"

#include <atomic>
#include <thread>
#include <vector>

namespace pinfold::testing::memfd_round_trip_test {
namespace {

class memfd_round_trip : public memfd_pair {};

TEST_P(memfd_round_trip, every_byte_of_every_size_is_read) {
  std::uint32_t seed = 100;
  for (const std::size_t bytes : {std::size_t{1}, 4 * kib, 64 * kib, 1024 * kib, 16 * 1024 * kib}) {
    ++seed;
    expect_round_trip(reader, peer.allocate(bytes, seed), seed);
  }
  EXPECT_EQ(reader.held(), 0U);
}

TEST_P(memfd_round_trip, later_writes_are_visible_in_an_open_mapping) {
  const auto handle = peer.allocate(64 * kib, 1);
  const auto made = reader.open(any_peer, handle);
  ASSERT_TRUE(made);
  peer.write(handle, 2);
  EXPECT_TRUE(holds_pattern(made->data, made->bytes, 2));
}

TEST_P(memfd_round_trip, read_write_imports_write_into_the_exporter) {
  exporter_peer writable(serving(memfd_access::read_write));
  auto writer = importer(memfd_access::read_write);
  const auto handle = writable.allocate(64 * kib, 1);
  const auto made = writer.open(any_peer, handle);
  ASSERT_TRUE(made) << describe(made.error());
  write_pattern(made->data, made->bytes, 2);
  EXPECT_TRUE(writable.holds(handle, 2));
}

TEST_P(memfd_round_trip, populated_mappings_hold_the_same_bytes) {
  memfd_importer populating({.via = GetParam(), .populate = true});
  expect_round_trip(populating, peer.allocate(1024 * kib, 3), 3);
}

TEST_P(memfd_round_trip, R4_allocation_reused_at_the_same_address_has_another_handle) {
  const auto before = peer.allocate(32 * kib, 1, quiet_address);
  const auto old = reader.open(any_peer, before);
  ASSERT_TRUE(old);

  peer.free(before);
  const auto after = peer.allocate(32 * kib, 2, before.base);
  ASSERT_EQ(after.base, before.base);
  EXPECT_NE(after, before);
  EXPECT_TRUE(holds_pattern(old->data, old->bytes, 1)) << "the open mapping keeps the bytes that it was opened for";

  ASSERT_TRUE(reader.close(old->registration));
  expect_refused(reader, before, errc::stale_handle);
  expect_round_trip(reader, after, 2);
}

TEST_P(memfd_round_trip, exporters_with_memory_at_the_same_address_are_distinguished) {
  exporter_peer one(serving());
  exporter_peer two(serving());
  const auto first = one.allocate(32 * kib, 1, quiet_address);
  const auto second = two.allocate(32 * kib, 2, quiet_address);
  const auto both = std::pair{reader.open(any_peer, first), reader.open(any_peer, second)};
  ASSERT_TRUE(both.first && both.second);
  EXPECT_TRUE(holds_pattern(both.first->data, 32 * kib, 1));
  EXPECT_TRUE(holds_pattern(both.second->data, 32 * kib, 2));
}

TEST_P(memfd_round_trip, four_threads_open_the_same_buffers_concurrently) {
  std::vector<memfd_handle> handles;
  for (std::uint32_t seed = 0; seed < 6; ++seed) handles.push_back(peer.allocate(16 * kib, seed));
  std::atomic<int> opened{0};
  std::atomic<int> wrong{0};
  const auto work = [&](std::uint32_t thread) {
    for (std::uint32_t i = 0; i < 300; ++i) {
      const std::uint32_t seed = (i + thread) % 6;
      const auto made = reader.open(any_peer, handles[seed]);
      if (!made) {
        if (made.error() != errc::already_mapped) ++wrong;
        continue;
      }
      ++opened;
      if (!holds_pattern(made->data, made->bytes, seed) || !reader.close(made->registration)) ++wrong;
    }
  };
  {
    std::vector<std::jthread> running;
    for (std::uint32_t thread = 0; thread < 4; ++thread) running.emplace_back(work, thread);
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GE(opened, 300) << "at least one thread's worth must have got through";
  EXPECT_EQ(reader.held(), 0U);
}

TEST_P(memfd_round_trip, descriptors_stay_bounded_over_many_opens) {
  const auto handle = peer.allocate(4 * kib, 1);
  expect_round_trip(reader, handle, 1);
  const int before = open_descriptors();
  for (int i = 0; i < 1000; ++i) expect_round_trip(reader, handle, 1);
  EXPECT_EQ(open_descriptors(), before);
}

TEST_P(memfd_round_trip, an_importer_inherited_by_fork_works_on_both_sides) {
  const auto handle = peer.allocate(4 * kib, 1);
  const auto other = peer.allocate(4 * kib, 2);
  expect_round_trip(reader, handle, 1);  // leaves a connection behind, which two processes must not share
  const auto work = [&](const memfd_handle& own, std::uint32_t seed) {
    for (int i = 0; i < 500; ++i) {
      const auto made = reader.open(any_peer, own);
      if (!made || !holds_pattern(made->data, made->bytes, seed) || !reader.close(made->registration)) return 1;
    }
    return 0;
  };
  child_process child([&](line&) { return work(other, 2); });
  EXPECT_EQ(work(handle, 1), 0);
  EXPECT_EQ(child.finish(), 0);
}

INSTANTIATE_TEST_SUITE_P(memfd, memfd_round_trip,
                         ::testing::Values(memfd_via::pidfd, memfd_via::scm, memfd_via::automatic), each_via::name);

TEST(memfd_round_trip_pidfd, buffers_can_be_opened_after_their_exporter_has_ended) {
  exporter_peer peer({.serve = true});
  const auto handle = peer.allocate(4 * kib, 1);
  peer.end_exporter();
  memfd_importer direct({.via = memfd_via::pidfd});
  expect_round_trip(direct, handle, 1);
  memfd_importer served({.via = memfd_via::scm});
  expect_refused(served, handle, errc::unsupported, ECONNREFUSED);
}

}  // namespace
}  // namespace pinfold::testing::memfd_round_trip_test
