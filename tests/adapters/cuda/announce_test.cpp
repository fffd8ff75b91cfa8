// SPDX-License-Identifier: BSD-3-Clause
// A program that exports its memory over pinfold and frees it as ever: the adapter announces that to importers (R66).
#include "adapters/cuda/client.hpp"
#include "emulated_cuda/control.hpp"
#include "support/processes/child_process.hpp"

#include <pinfold/release.h>

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <optional>

namespace client {
namespace {

constexpr std::size_t bytes = 64 << 10;
using handle = std::array<char, PINFOLD_CUDA_HANDLE_BYTES>;

/// A function of the library that the adapter brings along.
template <class Function>
Function* of_pinfold(Function* /*type*/, const char* name) {
  void* const found = dlsym(RTLD_DEFAULT, name);
  Function* function = nullptr;
  std::memcpy(&function, &found, sizeof found);
  return function;
}
#define OF_PINFOLD(name) (*of_pinfold(static_cast<decltype(&name)>(nullptr), #name))

struct order {
  bool finds;  ///< or else acquires and releases
  std::uint64_t base;
  handle memory;
};

struct answer {
  bool got;
  std::uint64_t mappings;
};

answer obey(pinfold_cache* cache, const order& wanted) {
  const auto take = wanted.finds ? &OF_PINFOLD(pinfold_find_import) : &OF_PINFOLD(pinfold_import);
  const auto got = take(cache, 1, wanted.memory.data(), wanted.memory.size(), wanted.base, bytes);
  emulated_cuda::counters now{};
  emulated_cuda::controls_of(::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD))->read_counters(&now);
  return {got.pin != 0 && OF_PINFOLD(pinfold_release)(got) == PINFOLD_OK, now.live_mappings};
}

int import_memory(pinfold::testing::line& talk) {
  static_cast<void>(find());  // loads the driver, which pinfold finds then
  pinfold_cache* cache = nullptr;
  if (OF_PINFOLD(pinfold_create_cuda_ipc_releasing)(0, nullptr, &cache) != PINFOLD_OK) return 1;
  while (const auto wanted = talk.receive<order>())
    if (!talk.send(obey(cache, *wanted))) return 1;
  return OF_PINFOLD(pinfold_destroy)(cache);
}

class announced_free : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!PINFOLD_HAS_ADAPTER) GTEST_SKIP() << "the adapter is not in this build";
    importer_.emplace(import_memory);  // before this process calls the driver
    cuda_ = find();
    ASSERT_EQ(cuda_.cuInit(0), 0);
    ASSERT_EQ(cuda_.cuDevicePrimaryCtxRetain(&context_, 0), 0);
    ASSERT_EQ(cuda_.cuCtxSetCurrent(context_), 0);
    pinfold_exporter_options how{};
    how.size = sizeof how;
    how.release = 1;
    ASSERT_EQ(OF_PINFOLD(pinfold_cuda_exporter_create_with)(&how, &exporter_), PINFOLD_OK);
  }
  void TearDown() override {
    if (exporter_ != nullptr) OF_PINFOLD(pinfold_cuda_exporter_destroy)(exporter_);
  }

  handle share(device_pointer memory) {
    handle made{};
    EXPECT_EQ(OF_PINFOLD(pinfold_cuda_share)(exporter_, memory, bytes, made.data(), made.size()), PINFOLD_OK);
    return made;
  }
  bool acquires(device_pointer base, const handle& memory) {
    return importer_->ask<answer>(order{false, base, memory}).got;
  }
  answer finds(device_pointer base, const handle& memory) { return importer_->ask<answer>(order{true, base, memory}); }

  std::optional<pinfold::testing::child_process> importer_;
  functions cuda_;
  context context_ = nullptr;
  pinfold_cuda_exporter* exporter_ = nullptr;
};

TEST_F(announced_free, importers_drop_what_the_program_frees) {
  device_pointer at = 0;
  ASSERT_EQ(cuda_.cuMemAlloc_v2(&at, bytes), 0);
  const auto memory = share(at);
  ASSERT_TRUE(acquires(at, memory));
  ASSERT_TRUE(finds(at, memory).got);
  EXPECT_EQ(cuda_.cuMemFree_v2(at), 0);
  EXPECT_FALSE(finds(at, memory).got);
  EXPECT_EQ(finds(at, memory).mappings, 0U) << "the importer's adapter keeps what the importer closed";
  EXPECT_FALSE(acquires(at, memory)) << "the handle is not stale";
}

TEST_F(announced_free, a_wrong_free_is_answered_by_the_driver) {
  EXPECT_NE(cuda_.cuMemFree_v2(~device_pointer{0}), 0);
  EXPECT_EQ(cuda_.cuMemFree_v2(0), 0);
}

}  // namespace
}  // namespace client
