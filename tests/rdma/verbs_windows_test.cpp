// SPDX-License-Identifier: BSD-3-Clause
// Remote keys that are withdrawn while local use goes on, with real bytes.
#include "rdma/pair.hpp"
#include "support/hazards/memory_attacks.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/remote_key_lease.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

namespace pinfold::testing::verbs_windows_test {
namespace {

constexpr std::size_t bytes = 65536;
constexpr access_flags to_peers = access_flags::remote_write | access_flags::remote_read;
using shown_lease = remote_key_lease<verbs_registrar>;

struct verbs_windows : ::testing::Test {
  ~verbs_windows() override {
    ::munmap(memory, bytes);
    ::munmap(own, bytes);
  }

  static range of(const void* first) {
    const auto begin = reinterpret_cast<std::uintptr_t>(first);
    return {begin, begin + bytes};
  }
  static bool is_all(const void* where, char content) {
    const auto* const first = static_cast<const char*>(where);
    return std::count(first, first + bytes, content) == bytes;
  }
  // The memory in the cache, and a window on it that the pair's other end may use.
  result<shown_lease> show(const rdma_pair& pair) {
    auto held = cache.acquire(memory, bytes);
    if (!held) return tl::unexpected(held.error());
    auto window = verbs_window::bind(pair.target(), held->registration(), of(memory), to_peers);
    if (!window) return tl::unexpected(window.error());
    return shown_lease::create(
        std::move(*held), bytes, table,
        {.key = window->rkey(), .withdraw = [one = *window]() mutable { return one.withdraw(); }});
  }
  ibv_wc_status peer_writes(rdma_pair& pair, char content, const remote_key_token& token) {
    std::memset(own, content, bytes);
    return pair.write(own, bytes, peer.lkey(), {reinterpret_cast<void*>(token.address), rkey_of(token)});
  }
  ibv_wc_status peer_reads(rdma_pair& pair, const remote_key_token& token) {
    std::memset(own, '?', bytes);
    return pair.read(own, bytes, peer.lkey(), {reinterpret_cast<void*>(token.address), rkey_of(token)});
  }
  static std::uint32_t rkey_of(const remote_key_token& token) { return static_cast<std::uint32_t>(token.key); }

  rdma_device device;
  void* memory = attacks::elsewhere(bytes);
  void* own = attacks::elsewhere(bytes);
  rdma_sink peer{device, own, bytes};
  remote_key_table table = *remote_key_table::create(16);
  pinfold::cache<verbs_registrar> cache{device.registrar({.windows = true}), {.monitor = monitor_choice::manual}};
};

TEST_F(verbs_windows, a_withdrawn_key_is_refused_and_local_use_goes_on) {
  rdma_pair pair(device);
  auto shown = show(pair);
  ASSERT_TRUE(shown) << describe(shown.error());
  const auto token = *decode_remote_key(encode(shown->token()));
  ASSERT_EQ(peer_writes(pair, '1', token), IBV_WC_SUCCESS);
  EXPECT_TRUE(is_all(memory, '1'));
  ASSERT_EQ(peer_reads(pair, token), IBV_WC_SUCCESS);
  EXPECT_TRUE(is_all(own, '1'));

  ASSERT_TRUE(shown->withdraw());
  EXPECT_FALSE(is_current(token, table.words())) << "a peer that looks does not even try";
  const auto refused = peer_writes(pair, '2', token);
  EXPECT_NE(refused, IBV_WC_SUCCESS);
  std::printf("the device says: %s\n", ::ibv_wc_status_str(refused));
  EXPECT_TRUE(is_all(memory, '1'));
  rdma_pair another(device);
  EXPECT_NE(peer_reads(another, token), IBV_WC_SUCCESS) << "on no pair";

  rdma_pair fresh(device);
  EXPECT_EQ(fresh.write(memory, bytes, shown->local().registration().lkey, {own, peer.rkey()}), IBV_WC_SUCCESS);
  EXPECT_TRUE(is_all(own, '1')) << "the region is as usable as before";
  EXPECT_EQ(cache.statistics().open, 1U);
}

// As a peer does it: it reads the word of its token before each use.
TEST_F(verbs_windows, a_peer_reads_the_table_over_rdma) {
  const auto words = table.words();
  const rdma_sink shown_table(device, const_cast<std::uint64_t*>(words.data()), words.size_bytes());
  rdma_pair pair(device);
  auto shown = show(pair);
  ASSERT_TRUE(shown) << describe(shown.error());
  const auto token = *decode_remote_key(encode(shown->token()));
  auto* const seen = static_cast<std::uint64_t*>(own);
  const auto look = [&] {
    rdma_pair to_table(device);
    std::memset(own, 0, bytes);
    return to_table.read(seen + token.slot, sizeof *seen, peer.lkey(),
                         {words.data() + token.slot, shown_table.rkey()}) == IBV_WC_SUCCESS &&
           is_current(token, {seen, token.slot + 1});
  };
  EXPECT_TRUE(look());
  EXPECT_TRUE(shown->withdraw());
  EXPECT_FALSE(look());
}

// Peers read all the time. A read that succeeds has no byte that the owner wrote after the withdrawal.
TEST_F(verbs_windows, no_byte_of_after_the_withdrawal_reaches_a_peer) {
  std::atomic<int> succeeded{0};
  for (int round = 0; round < 40; ++round) {
    rdma_pair pair(device);
    std::memset(memory, 'o', bytes);
    auto shown = show(pair);
    ASSERT_TRUE(shown) << describe(shown.error());
    std::jthread reading([&, token = shown->token()] {
      while (peer_reads(pair, token) == IBV_WC_SUCCESS) {
        ++succeeded;
        if (!is_all(own, 'o')) ADD_FAILURE() << "round " << round << " has later bytes";
      }
    });
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    for (const int before = succeeded; round % 8 == 7 && succeeded == before;) {  // the other thread may begin late
      if (std::chrono::steady_clock::now() > until) break;
      std::this_thread::yield();
    }
    std::this_thread::sleep_for(std::chrono::microseconds(300 * (round % 8)));
    ASSERT_TRUE(shown->withdraw());
    std::memset(memory, 'S', bytes);
  }
  EXPECT_GT(succeeded, 0);
}

TEST_F(verbs_windows, a_refused_bind_is_an_error_of_the_caller_who_waits) {
  pinfold::cache<verbs_registrar> plain(device.registrar(), {.monitor = monitor_choice::manual});
  auto held = plain.acquire(memory, bytes);
  ASSERT_TRUE(held);
  const auto bind_waiting = [&](rdma_pair& pair, const verbs_registrar::registration_type& region) {
    return verbs_window::bind(pair.target(), region, of(memory), to_peers,
                              [&](ibv_qp*, ibv_send_wr& work) -> result<void> {
                                const auto status = pair.execute_at_target(work);
                                if (status == IBV_WC_SUCCESS) return {};
                                return fail_errno(errc::driver_error, status, "the device refused the bind");
                              });
  };
  rdma_pair bad(device);
  const auto refused = bind_waiting(bad, held->registration());
  ASSERT_FALSE(refused) << "the region takes no windows";
  EXPECT_GT(refused.error().native, 0);
  EXPECT_TRUE(held->release());
  EXPECT_TRUE(plain.flush()) << "no window was left";

  rdma_pair good(device);
  auto with = cache.acquire(memory, bytes);
  auto window = bind_waiting(good, with->registration());
  ASSERT_TRUE(window) << describe(window.error());
  EXPECT_EQ(peer_writes(good, '1', {reinterpret_cast<std::uintptr_t>(memory), bytes, window->rkey(), 1, 0}),
            IBV_WC_SUCCESS);
  EXPECT_TRUE(window->withdraw());
}

TEST_F(verbs_windows, the_region_itself_gives_peers_no_right) {
  rdma_pair pair(device);
  auto shown = show(pair);
  ASSERT_TRUE(shown) << describe(shown.error());
  auto token = shown->token();
  token.key = shown->local().registration().rkey;
  std::memset(memory, '0', bytes);
  EXPECT_NE(peer_writes(pair, '1', token), IBV_WC_SUCCESS);
  EXPECT_TRUE(is_all(memory, '0'));
}

TEST_F(verbs_windows, windows_of_one_region_are_withdrawn_one_by_one) {
  rdma_pair one(device);
  rdma_pair other(device);
  auto first = show(one);
  auto second = show(other);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(cache.statistics().open, 1U) << "one region";
  EXPECT_TRUE(first->withdraw());
  EXPECT_EQ(peer_writes(other, '2', second->token()), IBV_WC_SUCCESS);
  EXPECT_TRUE(is_all(memory, '2'));
  EXPECT_NE(peer_writes(one, '3', first->token()), IBV_WC_SUCCESS);
  EXPECT_TRUE(is_all(memory, '2'));
}

TEST_F(verbs_windows, a_region_with_a_window_stays_until_the_window_is_withdrawn) {
  rdma_pair pair(device);
  auto held = cache.acquire(memory, bytes);
  ASSERT_TRUE(held);
  auto window = verbs_window::bind(pair.target(), held->registration(), of(memory), to_peers);
  ASSERT_TRUE(window) << describe(window.error());
  ASSERT_EQ(peer_writes(pair, '1', {reinterpret_cast<std::uintptr_t>(memory), bytes, window->rkey(), 1, 0}),
            IBV_WC_SUCCESS);
  ASSERT_TRUE(held->release());
  const auto flushed = cache.flush();
  ASSERT_FALSE(flushed);
  EXPECT_EQ(flushed.error(), errc::in_use_conflict) << describe(flushed.error());
  EXPECT_EQ(cache.statistics().open, 1U);
  EXPECT_TRUE(window->withdraw());
  EXPECT_TRUE(cache.flush());
  EXPECT_EQ(cache.statistics().open, 0U);
}

TEST_F(verbs_windows, the_end_of_a_lease_closes_in_the_right_order) {
  rdma_pair pair(device);
  {
    auto shown = show(pair);
    ASSERT_TRUE(shown);
    ASSERT_EQ(peer_writes(pair, '1', shown->token()), IBV_WC_SUCCESS);
  }
  EXPECT_TRUE(cache.flush());
  EXPECT_EQ(cache.statistics().open, 0U);
  EXPECT_EQ(table.count(), 0U);
}

}  // namespace
}  // namespace pinfold::testing::verbs_windows_test
