// SPDX-License-Identifier: BSD-3-Clause
// Failures that a device in software does not have: libibverbs' functions are replaced by functions that can fail.
#include "rdma/pair.hpp"
#include "support/hazards/memory_attacks.hpp"

#include <pinfold/cache.hpp>

#include <gtest/gtest.h>

#include <cerrno>
#include <dlfcn.h>

namespace {
int register_fails = 0, deregister_fails = 0;  // with this errno
int failures_left = 0;

bool fails(int with) {
  if (with == 0 || failures_left == 0) return false;
  --failures_left;
  return true;
}

template <class F>
F* real(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}
int gone(ibv_context*, const ibv_query_device_ex_input*, ibv_device_attr_ex*, std::size_t) { return EIO; }
}  // namespace

// The dynamic linker finds these before libibverbs' functions.
extern "C" ibv_mr* ibv_reg_mr_iova2(ibv_pd* domain, void* at, std::size_t bytes, std::uint64_t iova, unsigned access) {
  if (fails(register_fails)) return errno = register_fails, nullptr;
  return real<decltype(::ibv_reg_mr_iova2)>("ibv_reg_mr_iova2")(domain, at, bytes, iova, access);
}
extern "C" int ibv_dereg_mr(ibv_mr* region) {
  return fails(deregister_fails) ? deregister_fails : real<decltype(::ibv_dereg_mr)>("ibv_dereg_mr")(region);
}

namespace pinfold::testing::verbs_faults_test {
namespace {

struct verbs_faults : ::testing::Test {
  static constexpr std::size_t page = 4096;
  verbs_faults() { register_fails = deregister_fails = failures_left = 0; }
  ~verbs_faults() override { ::munmap(memory, 16 * page); }
  [[nodiscard]] std::byte* at(std::size_t number) const { return memory + number * page; }
  static void fail_next(int& which, int with) {
    which = with;
    failures_left = 1;
  }
  [[nodiscard]] auto open_page(verbs_registrar& registrar) const {
    const auto first = reinterpret_cast<std::uintptr_t>(at(0));
    return registrar.open({first, first + page}, local_access);
  }

  rdma_device device;
  std::byte* memory = static_cast<std::byte*>(attacks::elsewhere(16 * page));
  pinfold::cache<verbs_registrar> cache{device.registrar(), {.monitor = monitor_choice::manual}};
};

TEST_F(verbs_faults, R28_lack_of_memory_evicts_and_retries) {
  for (std::size_t i = 0; i < 4; ++i) ASSERT_TRUE(cache.acquire(at(2 * i), page));
  fail_next(register_fails, ENOMEM);
  auto held = cache.acquire(at(10), page);
  ASSERT_TRUE(held) << describe(held.error());
  EXPECT_GE(cache.statistics().evicted, 1U);
}

TEST_F(verbs_faults, other_errors_are_final_and_keep_their_errno) {
  fail_next(register_fails, EINVAL);
  auto refused = cache.acquire(at(0), page);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, errc::driver_error);
  EXPECT_EQ(refused.error().native, EINVAL);
  EXPECT_EQ(cache.statistics().failed_opens, 1U);
}

TEST_F(verbs_faults, failed_close_keeps_the_registration_and_can_be_repeated) {
  auto registrar = device.registrar();
  auto made = open_page(registrar);
  ASSERT_TRUE(made);
  fail_next(deregister_fails, EBUSY);
  auto closed = registrar.close(*made);
  ASSERT_FALSE(closed);
  EXPECT_EQ(closed.error().code, errc::in_use_conflict);
  EXPECT_EQ(closed.error().native, EBUSY);
  EXPECT_TRUE(registrar.close(*made));
}

TEST_F(verbs_faults, EIO_means_closed_only_if_the_device_was_removed) {
  auto registrar = device.registrar();
  auto made = open_page(registrar);
  ASSERT_TRUE(made);
  fail_next(deregister_fails, EIO);
  auto closed = registrar.close(*made);
  ASSERT_FALSE(closed) << "the device answers: it is there";
  EXPECT_EQ(closed.error().native, EIO);

  auto* const calls = verbs_get_ctx(device.context());
  const auto answering = std::exchange(calls->query_device_ex, gone);
  fail_next(deregister_fails, EIO);
  EXPECT_TRUE(registrar.close(*made)) << "the kernel closed it with the device";
  calls->query_device_ex = answering;
  EXPECT_TRUE(registrar.close(*made)) << "in truth it was there all the time";
}

}  // namespace
}  // namespace pinfold::testing::verbs_faults_test
