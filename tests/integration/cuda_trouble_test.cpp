// SPDX-License-Identifier: BSD-3-Clause
// Failures around GPU memory: no room, ended processes, reset devices. They give errors, and never a crash.
#include "support/fixtures/cuda_test.hpp"

#include "cuda/driver.hpp"
#include "support/host/process_limits.hpp"

#include <array>
#include <chrono>
#include <latch>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace pinfold::testing::cuda_trouble_test {
namespace {

class cuda_trouble : public cuda_peer_test {};

TEST_F(cuda_trouble, R7_idle_mappings_are_evicted_one_at_a_time) {
  PINFOLD_EMULATION_ONLY();
  cuda_cache cache{cuda_ipc_importer()};
  emulation().max_mappings(3);
  std::vector<cuda_peer::memory> all;
  for (std::uint32_t seed = 0; seed < 4; ++seed) all.push_back(peer.allocate(32 * kib, seed));
  for (std::uint32_t seed = 0; seed < 4; ++seed) touch(cache, all[seed], seed);
  EXPECT_EQ(cache.statistics().evicted, 1U);
  EXPECT_FALSE(cache.find(any_peer, all[0].handle, all[0].address, 1)) << "the least recently used one went";
  EXPECT_TRUE(cache.find(any_peer, all[1].handle, all[1].address, 1));
  EXPECT_EQ(gpu().counters().live_mappings, 3U);
}

TEST_F(cuda_trouble, R7_out_of_resources_is_returned_when_every_mapping_is_leased) {
  PINFOLD_EMULATION_ONLY();
  cuda_cache cache{cuda_ipc_importer()};
  emulation().max_mappings(1);
  const auto leased = peer.allocate(32 * kib, 1);
  const auto wanted = peer.allocate(32 * kib, 2);
  auto lease = acquire(cache, leased);
  ASSERT_TRUE(lease);
  expect_refused(cache, wanted, errc::out_of_resources, cuda::status::out_of_memory);
  EXPECT_EQ(gpu().counters().closes, 0U);
  EXPECT_TRUE(lease->release());
  touch(cache, wanted, 2);
}

TEST_F(cuda_trouble, R7_descriptors_kept_for_other_exporters_make_way) {
  PINFOLD_EMULATION_ONLY();
  cuda_cache cache{cuda_ipc_importer()};
  std::array<cuda_peer, 4> others;
  for (auto& one : others) touch(cache, one.allocate(32 * kib, 1), 1);
  const auto wanted = peer.allocate(32 * kib, 2);
  const lowered_limit none(RLIMIT_NOFILE, lowest_free_descriptor());
  const auto lease = acquire(cache, wanted);
  EXPECT_TRUE(lease) << describe(lease.error());
}

TEST_F(cuda_trouble, R7_other_driver_errors_are_returned_unchanged_and_evict_nothing) {
  PINFOLD_EMULATION_ONLY();
  cuda_cache cache{cuda_ipc_importer()};
  const auto idle = peer.allocate(32 * kib, 1);
  const auto wanted = peer.allocate(32 * kib, 2);
  touch(cache, idle, 1);
  emulation().fail("cuIpcOpenMemHandle", 1, static_cast<int>(cuda::status::launch_failed), false);
  expect_refused(cache, wanted, errc::driver_error, cuda::status::launch_failed);
  EXPECT_EQ(cache.statistics().evicted, 0U);
  EXPECT_TRUE(cache.find(any_peer, idle.handle, idle.address, 1));
  touch(cache, wanted, 2);
}

TEST_F(cuda_trouble, failed_query_of_the_context_does_not_end_its_registrations) {
  PINFOLD_EMULATION_ONLY();
  const auto fail_once = [] {
    emulation().fail("cuCtxGetId", 1, static_cast<int>(cuda::status::launch_failed), false);
  };
  for (const bool at_open : {true, false}) {
    cuda_cache cache{cuda_ipc_importer()};
    const auto memory = peer.allocate(32 * kib, 1);
    if (at_open) fail_once();
    touch(cache, memory, 1);
    EXPECT_EQ(gpu().counters().live_mappings, 1U);
    if (!at_open) fail_once();
    EXPECT_TRUE(cache.flush());
    EXPECT_EQ(gpu().counters().live_mappings, 0U) << (at_open ? "at the open" : "at the close");
  }
}

TEST_F(cuda_trouble, R37_driver_is_unsupported_in_a_fork_child) {
  ASSERT_TRUE(cuda::driver());
  const pid_t child = ::fork();
  if (child == 0) ::_exit(!cuda::driver() && cuda::driver().error() == errc::unsupported ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(cuda_trouble, R8_threads_that_acquire_one_handle_cause_one_open) {
  PINFOLD_EMULATION_ONLY();
  cuda_cache cache{cuda_ipc_importer()};
  const auto memory = peer.allocate(32 * kib, 1);
  emulation().delay("cuIpcOpenMemHandle", 20'000);
  constexpr int threads = 4;
  {
    std::latch start(threads);
    std::vector<std::jthread> all;
    for (int i = 0; i < threads; ++i)
      all.emplace_back([&] {
        start.arrive_and_wait();
        touch(cache, memory, 1);
      });
  }
  EXPECT_EQ(gpu().counters().opens, 1U);
  EXPECT_EQ(cache.statistics().misses, 1U);
  EXPECT_EQ(cache.statistics().hits, threads - 1U);
}

/// One run for each kind of memory.
class cuda_peer_death : public cuda_peer_test, public ::testing::WithParamInterface<cuda_memory_kind> {
 public:
  static std::string name(const ::testing::TestParamInfo<cuda_memory_kind>& info) {
    switch (info.param) {
      case cuda_memory_kind::allocation: return "allocation";
      case cuda_memory_kind::segments: return "segments";
      case cuda_memory_kind::pool: return "pool";
    }
    return "unknown";
  }

 protected:
  cuda_peer::memory allocate(std::uint32_t seed) {
    switch (GetParam()) {
      case cuda_memory_kind::segments: return peer.map_segments(1, segment, seed);
      case cuda_memory_kind::pool: return peer.allocate_pooled(32 * kib, seed);
      case cuda_memory_kind::allocation: break;
    }
    return peer.allocate(32 * kib, seed);
  }
  static bool closes_but_one(const cuda_cache& cache) {
    for (int i = 0; i < 1000 && cache.statistics().open > 1; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return cache.statistics().open == 1;
  }
};

TEST_P(cuda_peer_death, R3_killed_peer_is_peer_gone_and_its_leases_can_be_released) {
  cuda_cache cache{cuda_ipc_importer()};
  const auto leased = allocate(1);
  const auto idle = allocate(2);
  const auto unopened = allocate(3);
  auto lease = acquire(cache, leased);
  ASSERT_TRUE(lease) << describe(lease.error());
  touch(cache, idle, 2);
  peer.process().kill();
  const auto refused = acquire(cache, unopened);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), errc::peer_gone) << describe(refused.error());
  EXPECT_TRUE(cache.drop_peer(any_peer));
  EXPECT_TRUE(closes_but_one(cache)) << "the importer's thread may be closing it";
  EXPECT_TRUE(lease->stale());
  EXPECT_TRUE(lease->release());
  EXPECT_EQ(cache.statistics().open, 0U);
  EXPECT_EQ(acquire(cache, idle).error(), errc::peer_gone);
}

TEST_P(cuda_peer_death, R70_idle_memory_is_closed_without_a_call) {
  cuda_cache cache{cuda_ipc_importer()};
  auto lease = acquire(cache, allocate(1));
  ASSERT_TRUE(lease) << describe(lease.error());
  touch(cache, allocate(2), 2);
  peer.process().kill();
  EXPECT_TRUE(closes_but_one(cache));
  EXPECT_TRUE(lease->stale());
  EXPECT_TRUE(lease->release());
  EXPECT_EQ(cache.statistics().open, 0U);
}

TEST_P(cuda_peer_death, freed_memory_is_stale_handle_and_not_peer_gone) {
  cuda_cache cache{cuda_ipc_importer()};
  const auto memory = allocate(1);
  const auto kept = allocate(2);
  peer.free(memory.address);
  const auto refused = acquire(cache, memory);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), errc::stale_handle) << describe(refused.error());
  touch(cache, kept, 2);
}

INSTANTIATE_TEST_SUITE_P(kind, cuda_peer_death,
                         ::testing::Values(cuda_memory_kind::allocation, cuda_memory_kind::segments,
                                           cuda_memory_kind::pool),
                         cuda_peer_death::name);

TEST_F(cuda_trouble, memory_of_a_peer_that_reset_its_device_is_stale) {
  cuda_cache cache{cuda_ipc_importer()};
  const auto leased = peer.allocate(32 * kib, 1);
  const auto unopened = peer.allocate(32 * kib, 2);
  auto lease = acquire(cache, leased);
  ASSERT_TRUE(lease);
  peer.reset_device();
  const auto refused = acquire(cache, unopened);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), errc::stale_handle) << describe(refused.error());
  EXPECT_TRUE(lease->release());
  EXPECT_TRUE(cache.flush());
  EXPECT_EQ(cache.backend().held(), 0U);
}

TEST_F(cuda_trouble, missing_device_is_refused_by_open_and_not_by_check) {
  cuda_ipc_importer nowhere({.device = 1000});
  const auto memory = peer.allocate(32 * kib, 1);
  EXPECT_TRUE(nowhere.check(memory.handle));
  const auto made = nowhere.open(any_peer, memory.handle);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error(), errc::invalid_argument) << describe(made.error());
  EXPECT_EQ(nowhere.close({}).error(), errc::invalid_argument);
}

TEST_F(cuda_trouble, damaged_handle_is_refused_without_a_driver_call) {
  cuda_cache cache{cuda_ipc_importer()};
  const auto memory = peer.allocate(32 * kib, 1);
  for (std::size_t at = 0; at < sizeof memory.handle; ++at) {
    auto damaged = memory;
    auto* const bytes = reinterpret_cast<unsigned char*>(&damaged.handle);
    bytes[at] = static_cast<unsigned char>(bytes[at] ^ 0x10U);
    const auto refused = cache.acquire(any_peer, damaged.handle, memory.address, 1);
    ASSERT_FALSE(refused) << "byte " << at;
    EXPECT_EQ(refused.error(), errc::invalid_handle) << describe(refused.error());
  }
  EXPECT_EQ(gpu().counters().opens, 0U);
}

}  // namespace
}  // namespace pinfold::testing::cuda_trouble_test
