// SPDX-License-Identifier: BSD-3-Clause
// Limits on idle mappings, and threads that open and close under them.
#include "adapters/cuda/cuda_ipc.hpp"
#include "support/host/settings.hpp"

#include <atomic>
#include <chrono>
#include <mutex>
#include <shared_mutex>
#include <thread>

namespace client {
namespace {

TEST_F(cuda_ipc, count_limit_holds) {
  ::setenv("PINFOLD_MAX_COUNT", "3", 1);
  for (unsigned char i = 0; i < 10; ++i) {
    const auto at = opened(allocated(i));
    EXPECT_TRUE(has(at, i));
    EXPECT_EQ(close(at), success);
    EXPECT_LE(now().live_mappings, 3U);
  }
  EXPECT_EQ(now().live_mappings, 3U);
}

TEST_F(cuda_ipc, byte_limit_counts_what_is_mapped) {
  ::setenv("PINFOLD_MAX_BYTES", "8M", 1);
  for (unsigned char i = 0; i < 5; ++i) {
    const auto at = opened(allocated(i, std::size_t{3} << 20));
    EXPECT_EQ(close(at), success);
    EXPECT_LE(now().bytes_open, std::size_t{8} << 20);
  }
  EXPECT_EQ(now().live_mappings, 2U);
}

TEST_F(cuda_ipc, memory_beyond_the_limit_is_opened_all_the_same) {
  ::setenv("PINFOLD_MAX_COUNT", "1", 1);
  ::setenv("PINFOLD_MAX_BYTES", "1M", 1);
  const auto first = opened(allocated(1)), second = opened(allocated(2)), large = opened(allocated(3, 4 << 20));
  EXPECT_TRUE(has(first, 1) && has(second, 2) && has(large, 3));
  for (const auto at : {first, second, large}) EXPECT_EQ(close(at), success);
  EXPECT_EQ(now().live_mappings, 1U);
}

TEST_F(cuda_ipc, a_wanted_limit_is_out_of_memory) {
  ::setenv("PINFOLD_MAX_COUNT", "1", 1);
  ::setenv("PINFOLD_WHEN_FULL", "fail", 1);
  const auto at = opened(allocated(1));
  device_pointer none = 0;
  EXPECT_EQ(open(allocated(2), none), out_of_memory);
  EXPECT_EQ(close(at), success);
}

TEST_F(cuda_ipc, idle_mappings_are_closed_after_a_while) {
  ::setenv("PINFOLD_IDLE_TIMEOUT_MS", "20", 1);
  const auto other = allocated(2);
  EXPECT_EQ(close(opened(allocated(1))), success);
  for (int i = 0; i < 200 && now().closes == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(close(opened(other)), success);
  }
  EXPECT_GE(now().closes, 1U);
}

TEST_F(cuda_ipc, reaper_closes_in_the_context_of_the_mapping) {
  ::setenv("PINFOLD_IDLE_TIMEOUT_MS", "20", 1);
  ::setenv("PINFOLD_REAPER", "on", 1);
  EXPECT_EQ(close(opened(allocated(1))), success);
  for (int i = 0; i < 6000 && now().closes == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(now().closes, 1U);
  EXPECT_EQ(now().live_mappings, 0U);
}

TEST_F(cuda_ipc, idle_mappings_give_way_when_the_driver_has_no_room) {
  control_.max_mappings(2);
  const auto first = allocated(1), second = allocated(2), third = allocated(3);
  const auto held = opened(first);
  EXPECT_EQ(close(opened(second)), success);
  const auto at = opened(third);
  EXPECT_TRUE(has(at, 3));
  device_pointer none = 0;
  EXPECT_EQ(open(second, none), out_of_memory) << "both are in use";
  EXPECT_EQ(close(at), success);
  EXPECT_EQ(close(held), success);
}

class cuda_ipc_retries : public cuda_ipc {
 protected:
  // Evicts a mapping while the call of that number fails.
  void expect_retried_after(const char* call, unsigned number) {
    ::setenv("PINFOLD_MAX_COUNT", "1", 1);
    const auto first = allocated(1), second = allocated(2), third = allocated(3);
    EXPECT_EQ(close(opened(first)), success);
    control_.fail(call, number, 999, false);
    const auto at = opened(second);
    EXPECT_TRUE(has(at, 2));
    EXPECT_EQ(close(at), success);
    EXPECT_EQ(close(opened(third)), success);
    EXPECT_EQ(now().live_mappings, 1U);
  }
};

TEST_F(cuda_ipc_retries, a_refused_close_of_an_idle_mapping) { expect_retried_after("cuIpcCloseMemHandle", 1); }

TEST_F(cuda_ipc_retries, a_close_whose_context_the_driver_cannot_judge) {
  expect_retried_after("cuCtxGetId", 2);  // the first is that of the open
}

TEST_F(cuda_ipc, large_memory_meets_no_idle_mapping_of_what_was_there) {
  ::setenv("PINFOLD_MAX_BYTES", "1M", 1);
  const auto small = allocated(1);
  EXPECT_EQ(close(opened(small)), success);
  freed(small);
  const auto large = allocated(2, 4 << 20);
  EXPECT_EQ(large.pointer, small.pointer) << "lowest first";
  const auto at = opened(large);
  EXPECT_TRUE(has(at, 2));
  EXPECT_EQ(close(at), success);
}

std::chrono::steady_clock::time_point end_of_test() {
  const auto seconds = pinfold::testing::setting("PINFOLD_TEST_SECONDS", 0);
  return std::chrono::steady_clock::now() + std::chrono::milliseconds(seconds == 0 ? 300 : seconds * 1000);
}

TEST_F(cuda_ipc, threads_open_and_close_under_a_limit) {
  ::setenv("PINFOLD_MAX_COUNT", "2", 1);
  constexpr int threads = 2, kinds = 4;
  std::vector<exported> memory;
  for (unsigned char i = 0; i < kinds; ++i) memory.push_back(allocated(i));
  std::atomic<int> wrong{0}, rounds{0};
  const auto until = end_of_test();
  const auto work = [&](unsigned seed) {
    if (cuda_.cuCtxSetCurrent(context_) != success) ++wrong;
    for (unsigned i = seed; rounds <= 10 || std::chrono::steady_clock::now() < until; i = i * 5 + 1, ++rounds) {
      const auto kind = static_cast<unsigned char>(i >> 8 & (kinds - 1));
      device_pointer at = 0;
      if (open(memory[kind], at) != success || !has(at, kind) || close(at) != success) ++wrong;
    }
  };
  std::vector<std::thread> all;
  for (unsigned i = 0; i < threads; ++i) all.emplace_back(work, i);
  for (auto& one : all) one.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LT(now().opens, static_cast<std::uint64_t>(rounds)) << "some are hits";
  EXPECT_LE(now().live_mappings, 2U);
}

// The exporter replaces memory at its address while no thread uses it: the threads open what is there then.
TEST_F(cuda_ipc, threads_never_see_memory_of_before) {
  constexpr unsigned threads = 2, kinds = 3;
  std::vector<exported> memory(kinds);
  std::vector<unsigned char> fill(kinds);
  unsigned char next = 0;
  for (unsigned i = 0; i < kinds; ++i) memory[i] = allocated(fill[i] = next++);
  std::shared_mutex in_use;
  std::atomic<int> wrong{0}, rounds{0};
  const auto until = end_of_test();
  const auto use = [&](unsigned kind) {
    const std::shared_lock used(in_use);
    device_pointer at = 0;
    if (open(memory[kind], at) != success || !has(at, fill[kind]) || close(at) != success) ++wrong;
  };
  const auto replace = [&](unsigned kind) {
    const std::unique_lock unused(in_use);
    freed(memory[kind]);
    memory[kind] = allocated(fill[kind] = next++);
  };
  const auto work = [&](unsigned seed) {
    if (cuda_.cuCtxSetCurrent(context_) != success) ++wrong;
    for (unsigned i = seed; rounds <= 10 || std::chrono::steady_clock::now() < until;
         i = i * 1664525 + 1013904223, ++rounds) {
      use(i >> 16 & 1);
      use(2);
      if ((i >> 24) % 8 == 0) replace(i >> 20 & 1);
    }
  };
  std::vector<std::thread> all;
  for (unsigned i = 0; i < threads; ++i) all.emplace_back(work, i);
  for (auto& one : all) one.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(now().opens, kinds) << "some were replaced";
}

}  // namespace
}  // namespace client
