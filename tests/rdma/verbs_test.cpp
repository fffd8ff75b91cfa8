// SPDX-License-Identifier: BSD-3-Clause
// The verbs registrar's requests to the device, and the operations that the device then permits.
#include "rdma/pair.hpp"
#include "registrars/verbs/access.hpp"
#include "registrars/verbs/refusal.hpp"
#include "support/host/process_limits.hpp"

#include <pinfold/cache.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <vector>

namespace pinfold::testing::verbs_test {
namespace {

constexpr std::size_t bytes = 8192;

struct verbs : ::testing::Test {
  range all() {
    return {reinterpret_cast<std::uintptr_t>(memory.data()), reinterpret_cast<std::uintptr_t>(memory.data()) + bytes};
  }

  // Returns whether a peer may do the operation on memory registered with this access. Each call uses a new pair,
  // since a pair cannot be used after an error.
  bool peer_may(access_flags access, ibv_wr_opcode what) {
    auto registrar = device.registrar();
    auto made = registrar.open(all(), access);
    EXPECT_TRUE(made) << describe(made.error());
    if (!made) return false;
    std::array<std::uint64_t, 8> own{};
    const rdma_sink from(device, own.data(), sizeof own);
    rdma_pair pair(device);
    const rdma_place there{memory.data(), made->rkey};
    const auto status = what == IBV_WR_RDMA_WRITE  ? pair.write(own.data(), 64, from.lkey(), there)
                        : what == IBV_WR_RDMA_READ ? pair.read(own.data(), 64, from.lkey(), there)
                                                   : pair.fetch_and_add(own.data(), from.lkey(), there);
    EXPECT_TRUE(registrar.close(*made));
    return status == IBV_WC_SUCCESS;
  }

  rdma_device device;
  std::vector<std::byte> memory = std::vector<std::byte>(bytes);
};

TEST_F(verbs, R23_access_flags_include_the_rights_and_implied_flags) {
  using ::pinfold::verbs::access_flags;
  constexpr unsigned local = IBV_ACCESS_LOCAL_WRITE;
  EXPECT_EQ(access_flags(access_flags::local_read), 0U);
  EXPECT_EQ(access_flags(local_access), local);
  EXPECT_EQ(access_flags(access_flags::remote_read), unsigned{IBV_ACCESS_REMOTE_READ})
      << "reading needs no right to write";
  EXPECT_EQ(access_flags(access_flags::remote_write), local | IBV_ACCESS_REMOTE_WRITE);
  EXPECT_EQ(access_flags(access_flags::remote_atomic), local | IBV_ACCESS_REMOTE_ATOMIC);
}

TEST_F(verbs, R23_peers_can_do_only_what_the_rights_allow) {
  for (const auto& [right, what] : {std::pair{access_flags::remote_read, IBV_WR_RDMA_READ},
                                    {access_flags::remote_write, IBV_WR_RDMA_WRITE},
                                    {access_flags::remote_atomic, IBV_WR_ATOMIC_FETCH_AND_ADD}})
    for (const auto access :
         {local_access, access_flags::remote_read, access_flags::remote_write, access_flags::remote_atomic})
      EXPECT_EQ(peer_may(access, what), access == right) << static_cast<int>(access) << ' ' << what;
}

TEST_F(verbs, R24_peers_reach_only_the_registered_bytes) {
  cache cache(device.registrar(), {.monitor = monitor_choice::manual});
  auto lease = cache.acquire(memory.data() + 100, 1000, access_flags::remote_write);
  ASSERT_TRUE(lease) << describe(lease.error());
  std::array<std::byte, 64> own{};
  const rdma_sink from(device, own.data(), sizeof own);
  const auto write = [&](std::size_t at) {
    return rdma_pair(device).write(own.data(), 64, from.lkey(), {memory.data() + at, lease->registration().rkey});
  };
  EXPECT_EQ(write(100), IBV_WC_SUCCESS);
  EXPECT_EQ(write(1100 - 64), IBV_WC_SUCCESS);
  EXPECT_NE(write(99), IBV_WC_SUCCESS);
  EXPECT_NE(write(1101 - 64), IBV_WC_SUCCESS);
}

TEST_F(verbs, R25_limits_are_those_of_the_device) {
  ibv_device_attr says{};
  ASSERT_EQ(::ibv_query_device(device.context(), &says), 0);
  const auto registrar = device.registrar();
  EXPECT_EQ(registrar.limits().max_bytes, says.max_mr_size);
  EXPECT_EQ(registrar.capabilities().max_mr, static_cast<std::uint32_t>(says.max_mr));
  EXPECT_EQ(contains_all(registrar.limits().supported, access_flags::remote_atomic),
            says.atomic_cap != IBV_ATOMIC_NONE);
}

TEST_F(verbs, registers_with_relaxed_ordering) {
  auto registrar = device.registrar({.relaxed_ordering = true});
  auto made = registrar.open(all(), local_access | access_flags::remote_write);
  ASSERT_TRUE(made) << describe(made.error());
  EXPECT_TRUE(registrar.close(*made));
}

TEST_F(verbs, on_demand_paging_is_refused_unless_the_device_supports_it) {
  const auto device_has = verbs_capabilities_of(device.context());
  ASSERT_TRUE(device_has);
  for (const auto& [paging, has] : {std::pair{verbs_paging::on_demand, device_has->on_demand_paging},
                                    {verbs_paging::implicit, device_has->implicit_on_demand_paging}}) {
    auto made = verbs_registrar::create(device.domain(), {.paging = paging});
    ASSERT_EQ(made.has_value(), has);
    if (!made) {
      EXPECT_EQ(made.error().code, errc::unsupported);
      continue;
    }
    auto one = made->open(all(), local_access);
    EXPECT_TRUE(one) << describe(one.error());
    EXPECT_TRUE(!one || made->close(*one));
  }
}

// This device has no dma-bufs: the registrar asks it, and the device refuses.
TEST_F(verbs, dma_bufs_are_passed_to_the_device_and_their_descriptors_closed) {
  const auto before = open_descriptors();
  std::vector<range> asked;
  auto registrar = device.registrar({.dma_buf_of = [&](const range& one) -> std::optional<verbs_dma_buf> {
    asked.push_back(one);
    if (one.size() == bytes) return std::nullopt;
    return verbs_dma_buf{::open("/dev/null", O_RDONLY | O_CLOEXEC), 0};
  }});
  auto usual = registrar.open(all(), local_access);
  ASSERT_TRUE(usual) << describe(usual.error());
  EXPECT_TRUE(registrar.close(*usual));
  auto of_device = registrar.open({all().begin, all().begin + 4096}, local_access);
  ASSERT_FALSE(of_device);
  EXPECT_EQ(of_device.error().native, EOPNOTSUPP) << describe(of_device.error());
  EXPECT_EQ(of_device.error().code, errc::unsupported);
  EXPECT_EQ(asked.size(), 2U);
  EXPECT_EQ(open_descriptors(), before);
}

TEST_F(verbs, R37_make_verbs_fork_safe_returns_the_mechanism) {
  auto safe = make_verbs_fork_safe();
  ASSERT_TRUE(safe) << describe(safe.error());
  EXPECT_EQ(*safe, verbs_fork::kernel_copies) << "this kernel is newer than 5.12";
}

TEST_F(verbs, null_domain_and_context_are_refused) {
  EXPECT_EQ(verbs_registrar::create(nullptr).error().code, errc::invalid_argument);
  EXPECT_EQ(verbs_capabilities_of(nullptr).error().code, errc::invalid_argument);
  EXPECT_EQ(device.registrar().close({}).error().code, errc::invalid_argument);
}

TEST_F(verbs, errors_of_closes_keep_their_errno) {
  using ::pinfold::verbs::refused_close;
  EXPECT_EQ(refused_close(EBUSY, false).code, errc::in_use_conflict);
  EXPECT_EQ(refused_close(EINVAL, false).code, errc::driver_error);
  EXPECT_EQ(refused_close(EINVAL, false).native, EINVAL);
  EXPECT_EQ(refused_close(EINVAL, true).code, errc::in_use_conflict) << "soft-RoCE, of a region with a window";
}

TEST_F(verbs, R28_errors_name_the_limit_that_was_reached) {
  using ::pinfold::verbs::refused_open;
  for (const int native : {ENOMEM, EAGAIN, ENOSPC})
    EXPECT_EQ(refused_open(native, 0, false).code, errc::out_of_resources);
  EXPECT_NE(std::string(refused_open(ENOMEM, 0, true).message).find("max_mr"), std::string::npos);
  EXPECT_EQ(std::string(refused_open(ENOMEM, 0, false).message).find("max_mr"), std::string::npos);
  for (const auto& [native, code] : {std::pair{EFAULT, errc::invalid_range},
                                     {EOPNOTSUPP, errc::unsupported},
                                     {EPERM, errc::not_permitted},
                                     {EIO, errc::driver_error},
                                     {EINVAL, errc::driver_error}}) {
    EXPECT_EQ(refused_open(native, 0, false).code, code);
    EXPECT_EQ(refused_open(native, 0, false).native, native);
  }
}

}  // namespace
}  // namespace pinfold::testing::verbs_test
