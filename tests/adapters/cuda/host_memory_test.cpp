// SPDX-License-Identifier: BSD-3-Clause
// A program that registers host memory itself, beside caches of host memory in the same process (R69).
#include "adapters/cuda/cuda_ipc.hpp"

#include <pinfold/pinfold.h>

#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>

namespace client {
namespace {

constexpr int already_registered = 712;
constexpr unsigned both = PINFOLD_LOCAL_READ | PINFOLD_LOCAL_WRITE;

/// A function of the library that the adapter brings along.
template <class Function>
Function* of_pinfold(Function* /*type*/, const char* name) {
  void* const found = dlsym(RTLD_DEFAULT, name);
  Function* function = nullptr;
  std::memcpy(&function, &found, sizeof found);
  return function;
}
#define OF_PINFOLD(name) (*of_pinfold(static_cast<decltype(&name)>(nullptr), #name))

class host_memory : public cuda_ipc {
 protected:
  void SetUp() override {
    cuda_ipc::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    memory_ = static_cast<char*>(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(memory_, MAP_FAILED);
    pinfold_options options{};
    ASSERT_EQ(OF_PINFOLD(pinfold_options_init)(&options, sizeof options), PINFOLD_OK);
    options.monitor = PINFOLD_MONITOR_MANUAL;
    ASSERT_EQ(OF_PINFOLD(pinfold_create_cuda_host)(0, &options, &cache_), PINFOLD_OK);
  }
  void TearDown() override {
    if (cache_ != nullptr) {
      EXPECT_EQ(OF_PINFOLD(pinfold_destroy)(cache_), PINFOLD_OK);
    }
    if (memory_ != nullptr) ::munmap(memory_, bytes);
    cuda_ipc::TearDown();
  }
  pinfold_lease acquire() { return OF_PINFOLD(pinfold_acquire)(cache_, memory_, bytes, both); }
  static int release(pinfold_lease held) { return OF_PINFOLD(pinfold_release)(held); }
  int register_all() { return cuda_.cuMemHostRegister_v2(memory_, bytes, 0); }

  char* memory_ = nullptr;
  pinfold_cache* cache_ = nullptr;
};

TEST_F(host_memory, an_idle_registration_of_a_cache_makes_way_for_the_program) {
  ASSERT_EQ(release(acquire()), PINFOLD_OK);
  EXPECT_EQ(now().host_registrations, 1U);
  EXPECT_EQ(register_all(), success);
  EXPECT_EQ(register_all(), already_registered) << "by the program itself";
  EXPECT_EQ(cuda_.cuMemHostUnregister(memory_), success);
  EXPECT_EQ(now().host_registrations, 0U);
}

TEST_F(host_memory, a_leased_registration_stays_and_the_program_is_told) {
  const auto held = acquire();
  ASSERT_NE(held.pin, 0U);
  EXPECT_EQ(register_all(), already_registered);
  EXPECT_EQ(release(held), PINFOLD_OK);
  EXPECT_EQ(register_all(), success);
  const auto lent = acquire();
  ASSERT_NE(lent.pin, 0U) << "the program's registration serves the cache";
  EXPECT_EQ(release(lent), PINFOLD_OK);
  EXPECT_EQ(cuda_.cuMemHostUnregister(memory_), success) << "and is still there";
}

}  // namespace
}  // namespace client
