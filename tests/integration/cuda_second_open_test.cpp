// SPDX-License-Identifier: BSD-3-Clause
// Drivers differ when a handle is opened twice: some count it, some refuse it. Caches must not see the difference, and
// must not harm the application's own opens.
#include "support/fixtures/cuda_test.hpp"

#include <cstring>
#include <thread>

namespace pinfold::testing::cuda_second_open_test {
namespace {

using emulated_cuda::second_open;

class cuda_second_open : public cuda_peer_test, public ::testing::WithParamInterface<second_open> {
 public:
  static std::string name(const ::testing::TestParamInfo<second_open>& info) {
    return info.param == second_open::counted ? "counted" : "refused";
  }

 protected:
  void SetUp() override {
    PINFOLD_EMULATION_ONLY();
    cuda_peer_test::SetUp();
    emulation().set_second_open(GetParam());
  }
  void TearDown() override {
    if (!real_gpu()) cuda_peer_test::TearDown();
  }

  /// Opens a handle as an application does, behind the library's back.
  static cuda::device_pointer open_directly(const cuda_ipc_handle& handle) {
    cuda::ipc_memory_handle memory{};
    std::memcpy(memory.reserved, handle.memory.data(), sizeof memory.reserved);
    cuda::device_pointer at = 0;
    gpu().demand([&] { return gpu().calls().ipc_open_mem_handle(&at, memory, cuda::ipc_lazy_enable_peer_access); });
    return at;
  }
  static void close_directly(cuda::device_pointer at) {
    gpu().demand([&] { return gpu().calls().ipc_close_mem_handle(at); });
  }
};

TEST_P(cuda_second_open, two_caches_share_one_open_of_the_driver) {
  const auto memory = peer.allocate(32 * kib, 1);
  {
    cuda_cache one{cuda_ipc_importer()};
    cuda_cache two{cuda_ipc_importer()};
    auto first = acquire(one, memory);
    auto second = acquire(two, memory);
    ASSERT_TRUE(first && second);
    EXPECT_EQ(first->data(), second->data());
    EXPECT_EQ(gpu().counters().opens, 1U);
    EXPECT_EQ(one.backend().held(), 1U);
    EXPECT_EQ(two.backend().held(), 1U);
    EXPECT_TRUE(first->release() && one.flush());
    EXPECT_EQ(gpu().counters().closes, 0U) << "the other cache still has it";
    EXPECT_TRUE(gpu().holds(second->data(), 32 * kib, 1));
  }
  EXPECT_EQ(gpu().counters().opens, 1U);
  EXPECT_EQ(gpu().counters().closes, 1U);
}

TEST_P(cuda_second_open, R9_caches_open_and_close_the_same_handle_concurrently) {
  const auto memory = peer.allocate(32 * kib, 1);
  const auto work = [&] {
    cuda_cache cache(cuda_ipc_importer(), {.retain = false});
    for (int i = 0; i < 100; ++i) touch(cache, memory, 1);
  };
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 3; ++i) threads.emplace_back(work);
  }
  EXPECT_EQ(gpu().counters().mapped, gpu().counters().opens) << "the driver never saw a second open";
}

TEST_P(cuda_second_open, R6_mapping_of_the_application_evicts_nothing) {
  cuda_cache cache{cuda_ipc_importer()};
  const auto innocent = peer.allocate(32 * kib, 1);
  const auto memory = peer.allocate(32 * kib, 2);
  touch(cache, innocent, 1);
  const auto at = open_directly(memory.handle);
  if (GetParam() == second_open::counted) {
    touch(cache, memory, 2);
    EXPECT_TRUE(cache.flush());
  } else {
    expect_refused(cache, memory, errc::in_use_conflict, cuda::status::already_mapped);
    EXPECT_TRUE(cache.find(any_peer, innocent.handle, innocent.address, 1));
  }
  EXPECT_EQ(cache.statistics().evicted, 0U);
  EXPECT_EQ(cache.statistics().conflicts, 0U);
  EXPECT_TRUE(gpu().holds(at, 32 * kib, 2)) << "the application's mapping has suffered";
  close_directly(at);
  touch(cache, memory, 2);
}

TEST_P(cuda_second_open, R6_applications_mapping_of_freed_memory_is_in_use_conflict_where_the_driver_excludes) {
  cuda_cache cache{cuda_ipc_importer()};
  const auto old = peer.allocate(32 * kib, 1);
  const auto at = open_directly(old.handle);
  peer.free(old.address);
  const auto fresh = peer.allocate(64 * kib, 2);
  ASSERT_TRUE(lies_at(fresh, old.handle.base));
  if (GetParam() == second_open::counted) {
    touch(cache, fresh, 2);
  } else {
    expect_refused(cache, fresh, errc::in_use_conflict, cuda::status::already_mapped);
  }
  close_directly(at);
  touch(cache, fresh, 2);
}

TEST_P(cuda_second_open, R6_idle_stale_entry_of_another_cache_is_in_use_conflict_where_the_driver_excludes) {
  cuda_cache one{cuda_ipc_importer()};
  cuda_cache two{cuda_ipc_importer()};
  const auto old = open_and_free(one, 32 * kib);
  const auto fresh = peer.allocate(64 * kib, 2);
  ASSERT_TRUE(lies_at(fresh, old.handle.base));
  if (GetParam() == second_open::counted) {
    touch(two, fresh, 2);
  } else {
    expect_refused(two, fresh, errc::in_use_conflict, cuda::status::already_mapped);
  }
  EXPECT_EQ(one.backend().held(), 1U);
  EXPECT_TRUE(one.flush());
  touch(two, fresh, 2);
}

TEST_P(cuda_second_open, R41_failed_close_does_not_affect_another_cache) {
  cuda_cache one{cuda_ipc_importer()};
  cuda_cache two{cuda_ipc_importer()};
  const auto memory = peer.allocate(32 * kib, 1);
  touch(one, memory, 1);
  emulation().fail("cuIpcCloseMemHandle", 1, static_cast<int>(cuda::status::unknown), false);
  EXPECT_FALSE(one.flush());
  EXPECT_EQ(one.statistics().quarantined, 1U);
  touch(two, memory, 1);
  EXPECT_EQ(gpu().counters().opens, 1U);
  EXPECT_TRUE(one.flush());
  EXPECT_EQ(gpu().counters().closes, 0U);
  EXPECT_TRUE(two.flush());
  EXPECT_EQ(gpu().counters().closes, 1U);
}

INSTANTIATE_TEST_SUITE_P(driver, cuda_second_open, ::testing::Values(second_open::counted, second_open::refused),
                         cuda_second_open::name);

}  // namespace
}  // namespace pinfold::testing::cuda_second_open_test
