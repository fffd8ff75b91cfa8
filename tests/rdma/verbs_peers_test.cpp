// SPDX-License-Identifier: BSD-3-Clause
// A peer that has the key of memory which has gone since: R30 from the other side.
#include "rdma/pair.hpp"
#include "support/hazards/memory_attacks.hpp"
#include "support/host/process_limits.hpp"

#include <pinfold/cache.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace pinfold::testing::verbs_peers_test {
namespace {

constexpr std::size_t bytes = 65536;
constexpr access_flags to_peers = access_flags::remote_write | access_flags::remote_read;

struct verbs_peers : ::testing::Test {
  ~verbs_peers() override {
    ::munmap(memory, bytes);
    ::munmap(own, bytes);
  }

  // Writes as the peer, on a pair of its own.
  ibv_wc_status peer_writes(char content, std::uint32_t rkey) {
    std::memset(own, content, bytes);
    const rdma_sink from(device, own, bytes);
    return rdma_pair(device).write(own, bytes, from.lkey(), {memory, rkey});
  }
  void replace_memory() {
    ::munmap(memory, bytes);
    mend({static_cast<std::byte*>(memory), bytes});
    std::memset(memory, 'N', bytes);
  }
  [[nodiscard]] bool memory_is(char content) const {
    const auto* const first = static_cast<const char*>(memory);
    return std::count(first, first + bytes, content) == bytes;
  }

  rdma_device device;
  void* memory = attacks::elsewhere(bytes);
  void* own = attacks::elsewhere(bytes);
};

TEST_F(verbs_peers, write_of_a_peer_through_a_stale_key_is_lost_with_success) {
  const auto pinned = counted_by_kernel("VmPin");
  {
    cache cache(device.registrar(), {.monitor = monitor_choice::manual});
    auto held = cache.acquire(memory, bytes, to_peers);
    ASSERT_TRUE(held) << describe(held.error());
    EXPECT_EQ(peer_writes('1', held->registration().rkey), IBV_WC_SUCCESS);
    EXPECT_TRUE(memory_is('1'));
    replace_memory();
    EXPECT_EQ(peer_writes('2', held->registration().rkey), IBV_WC_SUCCESS);
    EXPECT_TRUE(memory_is('N')) << "the danger is real: the peer is told of success, and its bytes are nowhere";
  }
  EXPECT_EQ(counted_by_kernel("VmPin"), pinned);
}

// The owner invalidates, releases its lease, and only then unmaps the memory: the key is worthless from then on.
TEST_F(verbs_peers, R30_key_of_a_closed_registration_is_refused) {
  cache cache(device.registrar(), {.monitor = monitor_choice::manual});
  auto held = cache.acquire(memory, bytes, to_peers);
  ASSERT_TRUE(held) << describe(held.error());
  const auto old_key = held->registration().rkey;
  cache.invalidate(memory, bytes);
  EXPECT_TRUE(held->stale());
  EXPECT_TRUE(held->release());
  EXPECT_EQ(cache.statistics().open, 0U) << "the device does not have the region any more";
  replace_memory();
  EXPECT_NE(peer_writes('2', old_key), IBV_WC_SUCCESS);
  EXPECT_TRUE(memory_is('N'));

  auto again = cache.acquire(memory, bytes, to_peers);
  ASSERT_TRUE(again) << describe(again.error());
  EXPECT_NE(again->registration().rkey, old_key);
  EXPECT_EQ(peer_writes('3', again->registration().rkey), IBV_WC_SUCCESS);
  EXPECT_TRUE(memory_is('3'));
}

// The message arrives in pages that are no longer mapped; the lease tells that it is stale.
TEST_F(verbs_peers, R49_a_posted_receive_whose_memory_is_replaced_is_stale) {
  cache cache(device.registrar(), {.monitor = monitor_choice::manual});
  rdma_pair pair(device);
  std::memset(own, 'M', bytes);
  const rdma_sink message(device, own, bytes);
  {
    auto held = cache.acquire(memory, bytes);
    ASSERT_TRUE(held) << describe(held.error());
    pair.post_receive(memory, bytes, held->registration().lkey);
    cache.invalidate(memory, bytes);
    replace_memory();
    EXPECT_TRUE(pair.send(own, bytes, message.lkey())) << "both ends are told of success";
    EXPECT_TRUE(memory_is('N'));
    EXPECT_TRUE(held->stale());
  }
  EXPECT_EQ(cache.statistics().invalidated_while_leased, 1U);
  auto again = cache.acquire(memory, bytes);
  ASSERT_TRUE(again) << describe(again.error());
  pair.post_receive(memory, bytes, again->registration().lkey);
  EXPECT_TRUE(pair.send(own, bytes, message.lkey()));
  EXPECT_TRUE(memory_is('M'));
}

}  // namespace
}  // namespace pinfold::testing::verbs_peers_test
