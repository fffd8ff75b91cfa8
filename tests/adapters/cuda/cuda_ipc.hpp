// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// An importer with the adapter preloaded, over the emulated driver, and an exporter in another process.
#pragma once

#include "adapters/cuda/exporter.hpp"
#include "emulated_cuda/control.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

namespace client {

inline constexpr std::size_t bytes = 64 << 10;
inline constexpr unsigned lazily = 1;
inline constexpr int success = 0, invalid_value = 1, out_of_memory = 2, not_initialized = 3, invalid_context = 201,
                     invalid_handle = 400;

class cuda_ipc : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!PINFOLD_HAS_ADAPTER || peer_ != nullptr) return;
    peer_ = new exporter;  // ends with this process
    cuda_ = find();
    control_ = *emulated_cuda::controls_of(::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD));
    ASSERT_EQ(cuda_.cuInit(0), success);
  }

  void SetUp() override {
    if (!PINFOLD_HAS_ADAPTER) GTEST_SKIP() << "the adapter is not in this build";
    ASSERT_NE(std::getenv("LD_PRELOAD"), nullptr) << "set LD_PRELOAD";
    control_.reset();
    make_context();
  }

  // Each test has a context of its own, and so a cache.
  void TearDown() override {
    if (!PINFOLD_HAS_ADAPTER) return;
    EXPECT_EQ(now().double_closes, 0U);
    EXPECT_EQ(now().wrong_closes, wrong_closes_);
    EXPECT_EQ(cuda_.cuDevicePrimaryCtxReset_v2(0), success);
    for (const exported& one : all_) peer_->free(one);
    for (const char* name :
         {"PINFOLD_MAX_COUNT", "PINFOLD_MAX_BYTES", "PINFOLD_WHEN_FULL", "PINFOLD_IDLE_TIMEOUT_MS", "PINFOLD_REAPER"})
      ::unsetenv(name);
  }

  void make_context() {
    ASSERT_EQ(cuda_.cuDevicePrimaryCtxRetain(&context_, 0), success);
    ASSERT_EQ(cuda_.cuCtxSetCurrent(context_), success);
  }

  exported allocated(unsigned char fill, std::size_t size = bytes) {
    all_.push_back(peer_->allocate(size, fill));
    EXPECT_EQ(all_.back().failed, success);
    return all_.back();
  }
  void freed(const exported& gone) {
    peer_->free(gone);
    std::erase_if(all_, [&](const exported& one) { return one.pointer == gone.pointer; });
  }

  static int open(const exported& memory, device_pointer& at) {
    at = 0;
    return cuda_.cuIpcOpenMemHandle_v2(&at, memory.handle, lazily);
  }
  static device_pointer opened(const exported& memory) {
    device_pointer at = 0;
    EXPECT_EQ(open(memory, at), success);
    return at;
  }
  static int close(device_pointer at) { return cuda_.cuIpcCloseMemHandle(at); }

  static bool has(device_pointer at, unsigned char fill) {
    std::vector<unsigned char> seen(bytes);
    return cuda_.cuMemcpyDtoH_v2(seen.data(), at, bytes) == success &&
           std::ranges::all_of(seen, [&](unsigned char one) { return one == fill; });
  }

  static emulated_cuda::counters now() {
    emulated_cuda::counters read{};
    control_.read_counters(&read);
    return read;
  }

  inline static exporter* peer_ = nullptr;
  inline static functions cuda_;
  inline static emulated_cuda::controls control_;
  context context_ = nullptr;
  std::vector<exported> all_;
  std::uint64_t wrong_closes_ = 0;
};

}  // namespace client
