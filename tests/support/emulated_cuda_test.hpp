// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// For tests of the emulated CUDA driver itself, in one process.
#pragma once

#include "support/emulated_cuda.hpp"

#include <gtest/gtest.h>

namespace pinfold::testing {

inline constexpr std::size_t kib = 1024;
inline constexpr std::size_t mib = kib * kib;

inline emulated_driver& emulated() {
  static emulated_driver one;
  return one;
}

/// A fixture with a new context for each test, which leaves nothing behind.
class emulated_cuda_fixture : public ::testing::Test {
 protected:
  cuda::driver_table& cu = emulated().cu;
  emulated_cuda::controls& control = emulated().control;

  void SetUp() override {
    control.reset();
    emulated().start();
  }
  void TearDown() override {
    control.reset();
    cuda::context last = nullptr;
    while (cu.ctx_pop_current(&last) == cuda::status::success) {
    }
    while (cu.device_primary_ctx_release(0) == cuda::status::success) {
    }
    EXPECT_EQ(emulated().counters().allocations, 0U);
    EXPECT_EQ(emulated().counters().host_registrations, 0U);
  }

  cuda::device_pointer alloc(std::size_t bytes) {
    cuda::device_pointer made = 0;
    EXPECT_EQ(cu.mem_alloc(&made, bytes), cuda::status::success);
    return made;
  }

  template <class T>
  T attribute(cuda::pointer_attribute wanted, cuda::device_pointer of) {
    T value{};
    EXPECT_EQ(cu.pointer_get_attribute(&value, wanted, of), cuda::status::success) << static_cast<int>(wanted);
    return value;
  }
};

}  // namespace pinfold::testing
