// SPDX-License-Identifier: BSD-3-Clause
// GPU memory that was freed and allocated again at its address, which is what made the seed crash: a stale handle, a
// driver that still has the old memory mapped, and the way out of it.
#include "support/fixtures/cuda_test.hpp"

#include <optional>
#include <thread>

namespace pinfold::testing::cuda_reuse_test {
namespace {

using namespace std::chrono_literals;

class cuda_reuse : public cuda_peer_test {
 protected:
  /// Expects the right bytes: a failed expectation here is a wrong byte handed to a user.
  void expect_recovered(cuda_cache& cache, const cuda_shared& fresh, std::uint32_t seed, std::uint64_t conflicts) {
    touch(cache, fresh, seed);
    EXPECT_EQ(cache.statistics().conflicts, conflicts);
    EXPECT_EQ(cache.backend().held(), cache.statistics().open);
    expect_counters_add_up(cache.statistics());
  }

  /// A lease on memory that the peer has freed, and the memory that it allocated next.
  struct stale_lease {
    cuda_peer::memory old;
    result<cuda_cache::lease> lease;
    cuda_peer::memory fresh;
  };
  stale_lease lease_and_free(cuda_cache& cache, std::size_t fresh_bytes) {
    const auto old = peer.allocate(32 * kib, 1);
    auto lease = acquire(cache, old);
    peer.free(old.address);
    return {old, std::move(lease), peer.allocate(fresh_bytes, 2)};
  }
};

// Of drivers that say already_mapped of a handle whose addresses overlap an open mapping; driver 580 does not.
#define PINFOLD_DRIVER_THAT_EXCLUDES() \
  PINFOLD_EMULATION_ONLY();            \
  emulation().set_second_open(emulated_cuda::second_open::exclusive)

#define SKIP_UNLESS_AT(memory, address) \
  if (!lies_at(memory, address)) GTEST_SKIP() << "this driver gave another address"

TEST_F(cuda_reuse, R6_larger_allocation_at_the_same_base_replaces_the_old_entry) {
  PINFOLD_DRIVER_THAT_EXCLUDES();
  cuda_cache cache{cuda_ipc_importer()};
  const auto small = open_and_free(cache, 32 * kib);
  const auto large = peer.allocate(64 * kib, 2);
  SKIP_UNLESS_AT(large, small.handle.base);
  expect_recovered(cache, large, 2, 1);
  EXPECT_EQ(cache.statistics().failed_opens, 1U) << "the driver has said already mapped";
  EXPECT_EQ(cache.statistics().misses_extent, 1U);
  touch(cache, large, 2);
  EXPECT_EQ(cache.statistics().hits, 1U);
}

TEST_F(cuda_reuse, R4_stale_handle_is_refused_after_its_memory_was_reused) {
  PINFOLD_DRIVER_THAT_EXCLUDES();
  cuda_cache cache{cuda_ipc_importer()};
  const auto small = open_and_free(cache, 32 * kib);
  const auto large = peer.allocate(64 * kib, 2);
  touch(cache, large, 2);
  const auto refused = acquire(cache, small);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), errc::stale_handle) << describe(refused.error());
  touch(cache, large, 2);
}

TEST_F(cuda_reuse, R6_memory_at_reused_addresses_opens_beside_the_old_mapping) {
  cuda_cache cache{cuda_ipc_importer()};
  for (const std::size_t fresh_bytes : {32 * kib, 64 * kib}) {
    auto [old, lease, fresh] = lease_and_free(cache, fresh_bytes);
    ASSERT_TRUE(lease);
    SKIP_UNLESS_AT(fresh, old.handle.base);
    touch(cache, fresh, 2);
    EXPECT_TRUE(real_gpu() || gpu().holds(lease->data(), 32 * kib, 1)) << "the old mapping keeps its memory";
    EXPECT_TRUE(lease->release());
    EXPECT_TRUE(cache.flush());
    peer.free(fresh.address);
  }
  EXPECT_EQ(cache.statistics().conflicts, 0U);
}

// The driver compares nothing: it opens whatever lies at the base of the freed memory now.
TEST_F(cuda_reuse, R4_late_handle_is_stale_though_the_driver_opens_what_lies_there) {
  for (const std::size_t now_there : {32 * kib, 64 * kib, 4 * kib}) {
    SCOPED_TRACE(now_there);
    cuda_cache cache{cuda_ipc_importer()};
    const auto old = peer.allocate(32 * kib, 1);
    peer.free(old.address);
    const auto fresh = peer.allocate(now_there, 2);
    SKIP_UNLESS_AT(fresh, old.handle.base);
    for (const bool fresh_is_open : {false, true}) {
      std::optional<result<cuda_cache::lease>> other;
      if (fresh_is_open) other.emplace(acquire(cache, fresh));
      const auto before = gpu().counters();
      const auto refused = acquire(cache, old);
      ASSERT_FALSE(refused) << "a lease on memory that the handle does not name";
      EXPECT_EQ(refused.error(), errc::stale_handle) << describe(refused.error());
      if (fresh_is_open) continue;
      EXPECT_TRUE(real_gpu() || gpu().counters().opens == before.opens + 1) << "the driver found nothing wrong";
      EXPECT_EQ(gpu().counters().live_mappings, before.live_mappings) << "and what it opened was closed";
      EXPECT_EQ(cache.statistics().open, 0U);
    }
    touch(cache, fresh, 2);
    peer.free(fresh.address);
  }
}

TEST_F(cuda_reuse, R4_wrong_memory_that_the_driver_refuses_to_close_is_not_shared) {
  PINFOLD_EMULATION_ONLY();
  cuda_cache cache{cuda_ipc_importer()};
  const auto old = peer.allocate(32 * kib, 1);
  peer.free(old.address);
  const auto fresh = peer.allocate(32 * kib, 2);
  SKIP_UNLESS_AT(fresh, old.handle.base);
  emulation().fail("cuIpcCloseMemHandle", 1, static_cast<int>(cuda::status::launch_failed), false);
  for (int i = 0; i < 3; ++i) {
    const auto refused = acquire(cache, old);
    ASSERT_FALSE(refused) << "a lease on memory that the handle does not name";
    EXPECT_EQ(refused.error(), errc::stale_handle) << describe(refused.error());
  }
  EXPECT_EQ(gpu().counters().live_mappings, 0U) << "the second request closed what the first could not";
  touch(cache, fresh, 2);
}

TEST_F(cuda_reuse, R4_late_handle_is_stale_where_nothing_lies) {
  cuda_cache cache{cuda_ipc_importer()};
  const cuda_peer::memory block = keep_block();
  ASSERT_NE(block.address, 0U);
  const auto old = peer.allocate(32 * kib, 1);
  peer.free(old.address);
  const auto refused = acquire(cache, old);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), errc::stale_handle) << describe(refused.error());
}

// Whatever keeps the old mapping open, a late handle does not share it.
TEST_F(cuda_reuse, R4_late_handle_is_stale_though_another_cache_has_its_memory_open) {
  cuda_cache holds{cuda_ipc_importer()};
  cuda_cache cache{cuda_ipc_importer()};
  const auto old = peer.allocate(32 * kib, 1);
  touch(holds, old, 1);
  touch(cache, old, 1);
  EXPECT_TRUE(cache.flush());
  const auto kept = acquire(cache, old);
  ASSERT_TRUE(kept) << "memory that is there is shared";
  peer.free(old.address);
  cache.invalidate(any_peer, old.handle.allocation());
  const auto before = gpu().counters();
  for (int i = 0; i < 2; ++i) {
    const auto refused = acquire(cache, old);
    ASSERT_FALSE(refused) << "a lease on freed memory";
    EXPECT_EQ(refused.error(), errc::stale_handle) << describe(refused.error());
  }
  EXPECT_EQ(gpu().counters().live_mappings, before.live_mappings) << "nothing was closed under its holders";
}

TEST_F(cuda_reuse, R4_late_handle_of_segments_is_stale_though_another_cache_has_them_open) {
  cuda_cache holds{cuda_ipc_importer()};
  cuda_cache cache{cuda_ipc_importer()};
  const auto old = peer.map_segments(2, segment, 1);
  touch(holds, old, 1);
  peer.replace_segment(old.address + segment, segment, 2);
  const auto refused = acquire(cache, old);
  ASSERT_FALSE(refused) << "a lease on freed memory";
  EXPECT_EQ(refused.error(), errc::stale_handle) << describe(refused.error());
}

TEST_F(cuda_reuse, R4_without_confirm_a_late_handle_opens_what_lies_there) {
  cuda_cache cache{cuda_ipc_importer({.confirm = false})};
  const auto old = peer.allocate(32 * kib, 1);
  peer.free(old.address);
  const auto fresh = peer.allocate(32 * kib, 2);
  SKIP_UNLESS_AT(fresh, old.handle.base);
  touch(cache, old, 2);
}

TEST_F(cuda_reuse, R4_buffer_of_equal_size_at_the_same_address_is_no_hit) {
  cuda_cache cache{cuda_ipc_importer()};
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    const auto memory = peer.allocate(32 * kib, seed);
    touch(cache, memory, seed);
    peer.free(memory.address);
  }
  const auto now = cache.statistics();
  EXPECT_EQ(now.hits, 0U);
  EXPECT_EQ(now.misses, 20U);
  if (!real_gpu()) {
    EXPECT_EQ(now.invalid, 19U) << "found by the token, before the driver is asked";
    EXPECT_EQ(now.open, 1U);
  }
}

TEST_F(cuda_reuse, R6_new_allocation_may_begin_below_the_old_one) {
  PINFOLD_DRIVER_THAT_EXCLUDES();
  cuda_cache cache{cuda_ipc_importer()};
  const auto lower = peer.allocate(32 * kib, 1);
  const auto upper = peer.allocate(32 * kib, 2);
  touch(cache, upper, 2);
  peer.free(lower.address);
  peer.free(upper.address);
  const auto both = peer.allocate(64 * kib, 3);
  SKIP_UNLESS_AT(both, upper.handle.base - 32 * kib);
  expect_recovered(cache, both, 3, 1);
}

TEST_F(cuda_reuse, R6_new_allocation_may_be_the_upper_part_of_the_old_one) {
  cuda_cache cache{cuda_ipc_importer()};
  const auto old = open_and_free(cache, 64 * kib);
  static_cast<void>(peer.allocate(32 * kib, 2));
  const auto fresh = peer.allocate(32 * kib, 3);
  SKIP_UNLESS_AT(fresh, old.handle.base + 32 * kib);
  touch(cache, fresh, 3);
  EXPECT_EQ(cache.statistics().invalid, 1U) << "the old entry has the wanted bytes: its token tells";
  EXPECT_EQ(cache.statistics().open, 1U);
}

TEST_F(cuda_reuse, R6_new_allocation_may_begin_inside_the_old_one_and_end_after_it) {
  PINFOLD_DRIVER_THAT_EXCLUDES();
  cuda_cache cache{cuda_ipc_importer()};
  const auto old = open_and_free(cache, 64 * kib);
  static_cast<void>(peer.allocate(32 * kib, 2));
  const auto fresh = peer.allocate(64 * kib, 3);
  SKIP_UNLESS_AT(fresh, old.handle.base + 32 * kib);
  expect_recovered(cache, fresh, 3, 1);
}

TEST_F(cuda_reuse, R6_only_the_old_entries_under_the_new_allocation_are_closed) {
  PINFOLD_DRIVER_THAT_EXCLUDES();
  cuda_cache cache{cuda_ipc_importer()};
  const auto before = peer.allocate(32 * kib, 1);
  std::vector<cuda_peer::memory> old;
  for (std::uint32_t seed = 2; seed < 6; ++seed) old.push_back(peer.allocate(32 * kib, seed));
  const auto after = peer.allocate(32 * kib, 6);
  touch(cache, before, 1);
  for (std::uint32_t i = 0; i < 4; ++i) touch(cache, old[i], 2 + i);
  touch(cache, after, 6);
  for (const auto& one : old) peer.free(one.address);
  const auto fresh = peer.allocate(128 * kib, 7);
  SKIP_UNLESS_AT(fresh, old[0].handle.base);
  expect_recovered(cache, fresh, 7, 4);
  EXPECT_TRUE(cache.find(any_peer, before.handle, before.address, 1));
  EXPECT_TRUE(cache.find(any_peer, after.handle, after.address, 1));
}

TEST_F(cuda_reuse, R6_leased_stale_entry_is_in_use_conflict_at_once) {
  PINFOLD_DRIVER_THAT_EXCLUDES();
  cuda_cache cache{cuda_ipc_importer()};
  auto [old, lease, fresh] = lease_and_free(cache, 64 * kib);
  ASSERT_TRUE(lease);
  SKIP_UNLESS_AT(fresh, old.handle.base);
  expect_refused(cache, fresh, errc::in_use_conflict, cuda::status::already_mapped);
  EXPECT_EQ(cache.statistics().conflicts, 0U);
  EXPECT_TRUE(real_gpu() || gpu().holds(lease->data(), 32 * kib, 1)) << "the old mapping keeps its memory";
  EXPECT_TRUE(lease->release());
  touch(cache, fresh, 2);
}

TEST_F(cuda_reuse, R5_R6_leased_stale_entry_of_the_same_range_is_in_use_conflict) {
  PINFOLD_DRIVER_THAT_EXCLUDES();
  cuda_cache cache{cuda_ipc_importer()};
  auto [old, lease, fresh] = lease_and_free(cache, 32 * kib);
  ASSERT_TRUE(lease);
  SKIP_UNLESS_AT(fresh, old.handle.base);
  expect_refused(cache, fresh, errc::in_use_conflict, cuda::status::already_mapped);
  EXPECT_TRUE(lease->stale());
  EXPECT_EQ(cache.backend().held(), 1U);
  EXPECT_TRUE(lease->release());
  EXPECT_EQ(cache.backend().held(), 0U) << "a stale entry is closed by its last release";
  touch(cache, fresh, 2);
}

TEST_F(cuda_reuse, R6_acquire_waits_for_the_conflicting_lease_until_the_deadline) {
  PINFOLD_DRIVER_THAT_EXCLUDES();
  const auto old = peer.allocate(32 * kib, 1);
  peer.free(old.address);
  const auto again = peer.allocate(32 * kib, 2);
  cuda_cache patient(cuda_ipc_importer(), {.conflict_timeout = 60s});
  auto lease = acquire(patient, again);
  ASSERT_TRUE(lease);
  peer.free(again.address);
  const auto fresh = peer.allocate(64 * kib, 3);
  SKIP_UNLESS_AT(fresh, again.handle.base);
  std::jthread later([taken = std::move(*lease)]() mutable {
    std::this_thread::sleep_for(30ms);
    static_cast<void>(taken.release());
  });
  touch(patient, fresh, 3);
}

TEST_F(cuda_reuse, R6_acquire_returns_in_use_conflict_at_the_deadline) {
  PINFOLD_DRIVER_THAT_EXCLUDES();
  cuda_cache cache(cuda_ipc_importer(), {.conflict_timeout = 20ms});
  const auto old = peer.allocate(32 * kib, 1);
  const auto lease = acquire(cache, old);
  ASSERT_TRUE(lease);
  peer.free(old.address);
  const auto fresh = peer.allocate(64 * kib, 2);
  SKIP_UNLESS_AT(fresh, old.handle.base);
  const auto start = std::chrono::steady_clock::now();
  expect_refused(cache, fresh, errc::in_use_conflict, cuda::status::already_mapped);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 20ms);
}

TEST_F(cuda_reuse, R3_another_peers_memory_at_the_same_address_is_no_conflict) {
  cuda_peer other;
  cuda_cache cache{cuda_ipc_importer()};
  const auto mine = peer.allocate(32 * kib, 1);
  const auto theirs = other.allocate(64 * kib, 2);
  auto one = cache.acquire({1}, mine.handle, mine.address, 32 * kib);
  auto two = cache.acquire({2}, theirs.handle, theirs.address, 64 * kib);
  ASSERT_TRUE(one && two);
  EXPECT_TRUE(gpu().holds(one->data(), 32 * kib, 1));
  EXPECT_TRUE(gpu().holds(two->data(), 64 * kib, 2));
  EXPECT_EQ(cache.statistics().conflicts, 0U);
}

TEST_F(cuda_reuse, R1_R2_lease_on_a_part_points_to_its_exact_byte) {
  cuda_cache cache{cuda_ipc_importer()};
  const auto memory = peer.allocate(64 * kib, 4);
  const auto whole = acquire(cache, memory);
  ASSERT_TRUE(whole);
  for (const std::size_t at : {std::size_t{1}, std::size_t{4095}, 64 * kib - 1}) {
    const auto part = cache.acquire(any_peer, memory.handle, memory.address + at, 1);
    ASSERT_TRUE(part);
    EXPECT_EQ(static_cast<const std::byte*>(part->data()), static_cast<const std::byte*>(whole->data()) + at);
  }
  EXPECT_EQ(cache.acquire(any_peer, memory.handle, memory.address + 1, 64 * kib).error(), errc::invalid_range);
  EXPECT_EQ(cache.statistics().opens, 1U);
}

}  // namespace
}  // namespace pinfold::testing::cuda_reuse_test
