// SPDX-License-Identifier: BSD-3-Clause
// What a program sees of the preloaded library: pointers, bytes, errors, contexts, forks.
#include "adapters/cuda/cuda_ipc.hpp"
#include "support/processes/in_child.hpp"

#include <array>

namespace client {
namespace {

TEST_F(cuda_ipc, many_opens_and_closes_are_one_of_the_driver) {
  const auto memory = allocated(7);
  const auto first = opened(memory);
  EXPECT_TRUE(has(first, 7));
  EXPECT_EQ(close(first), success);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(opened(memory), first);
    EXPECT_EQ(close(first), success);
  }
  EXPECT_EQ(now().opens, 1U);
  EXPECT_EQ(now().closes, 0U);
  EXPECT_TRUE(has(first, 7)) << "still mapped";
}

TEST_F(cuda_ipc, opens_are_counted_as_the_driver_does) {
  const auto memory = allocated(1);
  const auto at = opened(memory);
  EXPECT_EQ(opened(memory), at);
  EXPECT_EQ(close(at), success);
  EXPECT_EQ(close(at), success);
  EXPECT_EQ(now().opens, 1U);
}

// The exporter has the same address again: the mapping of its former memory is in the way.
TEST_F(cuda_ipc, reallocated_memory_has_its_new_bytes) {
  control_.set_second_open(emulated_cuda::second_open::exclusive);  // as older drivers; others keep all five
  for (unsigned char round = 1; round < 6; ++round) {
    const auto memory = allocated(round);
    EXPECT_EQ(memory.pointer, all_.front().pointer) << "lowest first";
    const auto at = opened(memory);
    EXPECT_TRUE(has(at, round)) << int(round);
    EXPECT_EQ(close(at), success);
    freed(memory);
  }
  EXPECT_EQ(now().opens, 5U);
  EXPECT_EQ(now().live_mappings, 1U);
}

TEST_F(cuda_ipc, the_drivers_refusals_are_the_programs) {
  const auto memory = allocated(1);
  device_pointer at = 0;
  exported wrong = memory;
  wrong.handle.bytes.fill('x');
  EXPECT_EQ(open(wrong, at), invalid_handle);
  EXPECT_EQ(cuda_.cuIpcOpenMemHandle_v2(&at, memory.handle, 0), invalid_value);
  EXPECT_EQ(cuda_.cuIpcOpenMemHandle_v2(nullptr, memory.handle, lazily), invalid_value);
  control_.fail("cuIpcOpenMemHandle", 1, 999, true);
  EXPECT_EQ(open(memory, at), 999);
  control_.fail("cuIpcOpenMemHandle", 1, 0, false);
  ASSERT_EQ(cuda_.cuCtxSetCurrent(nullptr), success);
  EXPECT_EQ(open(memory, at), invalid_context);
  ASSERT_EQ(cuda_.cuCtxSetCurrent(context_), success);
  const auto gone = allocated(2);
  freed(gone);
  EXPECT_EQ(open(gone, at), invalid_value) << "nothing lies there";
}

TEST_F(cuda_ipc, pointers_of_others_are_closed_by_the_driver) {
  const auto at = opened(allocated(1));
  EXPECT_EQ(close(at), success);
  EXPECT_EQ(close(at + 4096), invalid_value);
  wrong_closes_ = 1;
  control_.fail("cuIpcCloseMemHandle", 1, 999, false);
  EXPECT_EQ(close(at + 4096), 999);
}

TEST_F(cuda_ipc, a_reset_context_takes_its_mappings_along) {
  const auto memory = allocated(1), other = allocated(2);
  const auto held = opened(memory);
  EXPECT_EQ(close(opened(other)), success);
  ASSERT_EQ(cuda_.cuDevicePrimaryCtxReset_v2(0), success);
  make_context();
  EXPECT_EQ(now().live_mappings, 0U);
  EXPECT_TRUE(has(opened(other), 2));
  const auto at = opened(memory);
  EXPECT_TRUE(has(at, 1));
  EXPECT_EQ(now().opens, 4U);
  EXPECT_EQ(now().closes, 0U) << "nothing of the former context may be closed";
  static_cast<void>(held);
}

TEST_F(cuda_ipc, an_idle_mapping_of_another_context_gives_way) {
  const auto memory = allocated(1);
  EXPECT_EQ(close(opened(memory)), success);
  context other = nullptr;
  ASSERT_EQ(cuda_.cuCtxCreate_v2(&other, 0, 0), success);
  const auto at = opened(memory);
  EXPECT_TRUE(has(at, 1));
  ASSERT_EQ(cuda_.cuCtxSetCurrent(context_), success);
  device_pointer refused = 0;
  EXPECT_EQ(open(memory, refused), invalid_handle)
      << "as from the driver: the program has it open in the other context";
  ASSERT_EQ(cuda_.cuCtxSetCurrent(other), success);
  EXPECT_EQ(close(at), success);
  ASSERT_EQ(cuda_.cuCtxSetCurrent(context_), success);
  const auto again = opened(memory);
  EXPECT_TRUE(has(again, 1));
  EXPECT_EQ(close(again), success);
  EXPECT_EQ(cuda_.cuCtxDestroy_v2(other), success);
}

TEST_F(cuda_ipc, a_destroyed_context_takes_its_mappings_along) {
  const auto memory = allocated(1), held = allocated(2);
  context other = nullptr;
  ASSERT_EQ(cuda_.cuCtxCreate_v2(&other, 0, 0), success);
  EXPECT_EQ(close(opened(memory)), success);
  static_cast<void>(opened(held));
  EXPECT_EQ(now().live_mappings, 2U) << "one is idle";
  ASSERT_EQ(cuda_.cuCtxDestroy_v2(other), success);
  ASSERT_EQ(cuda_.cuCtxSetCurrent(context_), success);
  EXPECT_EQ(now().live_mappings, 0U);
  for (const auto* each : {&memory, &held}) {
    const auto at = opened(*each);
    EXPECT_TRUE(has(at, each == &memory ? 1 : 2));
    EXPECT_EQ(close(at), success);
  }
  EXPECT_EQ(now().closes, 0U) << "nothing of the destroyed context may be closed";
}

TEST_F(cuda_ipc, the_end_of_the_driver_is_the_programs_to_hear) {
  const auto memory = allocated(1);
  const auto held = opened(memory);
  constexpr int deinitialized = 4;
  constexpr std::array calls{"cuCtxGetCurrent", "cuCtxGetId", "cuIpcOpenMemHandle", "cuIpcCloseMemHandle"};
  for (const char* call : calls) control_.fail(call, 1, deinitialized, true);
  device_pointer at = 0;
  EXPECT_EQ(open(memory, at), deinitialized);
  EXPECT_EQ(close(held), success) << "nothing is left to be closed";
  EXPECT_EQ(close(held), deinitialized);
  for (const char* call : calls) control_.fail(call, 1, success, false);
}

TEST_F(cuda_ipc, a_child_has_no_driver) {
  const auto memory = allocated(1);
  const auto at = opened(memory);
  pinfold::testing::run_in_child([&] {
    device_pointer mine = 0;
    EXPECT_EQ(open(memory, mine), not_initialized);
    EXPECT_EQ(close(at), not_initialized);
  });
  EXPECT_TRUE(has(at, 1));
  EXPECT_EQ(close(at), success);
  EXPECT_EQ(now().opens, 1U);
}

// The emulation's function calls the other entry, which is changed too.
TEST_F(cuda_ipc, the_older_function_has_its_own_cache) {
  const auto memory = allocated(1);
  device_pointer at = 0;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(cuda_.cuIpcOpenMemHandle(&at, memory.handle, lazily), success);
    EXPECT_TRUE(has(at, 1));
    EXPECT_EQ(close(at), success);
  }
  EXPECT_EQ(now().opens, 1U);
  EXPECT_EQ(opened(memory), at);
  EXPECT_EQ(now().opens, 2U) << "the driver counts";
  EXPECT_EQ(close(at), success);
}

// Where the driver does not count, as before CUDA 11.2.
TEST_F(cuda_ipc, second_opens_need_no_driver_that_counts) {
  control_.set_second_open(emulated_cuda::second_open::refused);
  const auto memory = allocated(1);
  const auto at = opened(memory);
  EXPECT_EQ(opened(memory), at);
  EXPECT_EQ(close(at), success);
  EXPECT_EQ(close(at), success);
  device_pointer older = 0;
  EXPECT_EQ(cuda_.cuIpcOpenMemHandle(&older, memory.handle, lazily), success) << "the idle mapping gives way";
  EXPECT_TRUE(has(older, 1));
  EXPECT_EQ(close(older), success);
}

}  // namespace
}  // namespace client
