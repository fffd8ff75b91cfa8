// SPDX-License-Identifier: BSD-3-Clause
// Features that an emulated device lacks: paging on demand, and dma-bufs. Runs without a device, over functions of
// libibverbs' names that only count.
#include <pinfold/dma_buf.hpp>
#include <pinfold/registrars/verbs.hpp>
#include <pinfold/verbs.h>

#include <gtest/gtest.h>

#include <cerrno>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <optional>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace {
int registered = 0, deregistered = 0;
unsigned last_access = 0;
ibv_mr region{};

ibv_mr* made_with(unsigned access) {
  ++registered;
  last_access = access;
  return &region;
}
}  // namespace

// The dynamic linker finds these before libibverbs' functions.
extern "C" ibv_mr* ibv_reg_mr_iova2(ibv_pd*, void*, std::size_t, std::uint64_t, unsigned access) {
  return made_with(access);
}
extern "C" int ibv_dereg_mr(ibv_mr*) { return ++deregistered, 0; }
#if defined(PINFOLD_HAS_REG_DMABUF_MR)
extern "C" ibv_mr* ibv_reg_dmabuf_mr(ibv_pd*, std::uint64_t, std::size_t, std::uint64_t, int, int access) {
  return made_with(static_cast<unsigned>(access));
}
#endif

namespace pinfold::testing {
namespace {

int with_paging(ibv_context*, const ibv_query_device_ex_input*, ibv_device_attr_ex* says, std::size_t) {
  *says = {};
  says->orig_attr.max_mr_size = UINT64_MAX;
  says->orig_attr.max_mr = 1000;
  says->odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
  return 0;
}

struct verbs_fake : ::testing::Test {
  verbs_fake() {
    registered = deregistered = 0;
    device.query_device_ex = with_paging;
    device.sz = sizeof device;
    device.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    domain.context = &device.context;
  }
  verbs_registrar registrar(verbs_registrar_options options) {
    auto made = verbs_registrar::create(&domain, std::move(options));
    if (!made) throw std::runtime_error(describe(made.error()));
    return std::move(*made);
  }
  static std::optional<verbs_dma_buf> dma_buf(const range& /*unused*/) {
    return verbs_dma_buf{::open("/dev/null", O_RDONLY | O_CLOEXEC), 0};
  }

  verbs_context device{};
  ibv_pd domain{};
};

TEST_F(verbs_fake, implicit_paging_is_one_region) {
  {
    auto all = registrar({.paging = verbs_paging::implicit});
    auto one = all.open({0x1000, 0x2000}, local_access);
    ASSERT_TRUE(one) << describe(one.error());
    EXPECT_TRUE(all.close(*one));
    EXPECT_EQ(registered, 1);
    EXPECT_EQ(deregistered, 0);
  }
  EXPECT_EQ(deregistered, 1);
}

TEST_F(verbs_fake, R37_a_forked_child_leaves_the_region_for_the_whole_address_space) {
  auto all = std::make_optional(registrar({.paging = verbs_paging::implicit}));
  const ::pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    all.reset();
    ::_exit(deregistered);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  all.reset();
  EXPECT_EQ(deregistered, 1);
}

TEST_F(verbs_fake, C_interface_registers_once_and_gives_the_keys) {
  pinfold_options options;
  ASSERT_EQ(pinfold_options_init(&options, sizeof options), PINFOLD_OK);
  options.monitor = PINFOLD_MONITOR_MANUAL;
  pinfold_verbs_options how{};
  how.size = sizeof how;
  how.paging = 3;
  pinfold_cache* cache = nullptr;
  EXPECT_EQ(pinfold_create_verbs(&domain, &how, &options, &cache), PINFOLD_E_INVALID_ARGUMENT);
  how.paging = PINFOLD_VERBS_ON_DEMAND;
  EXPECT_EQ(pinfold_create_verbs(nullptr, &how, &options, &cache), PINFOLD_E_INVALID_ARGUMENT);
  ASSERT_EQ(pinfold_create_verbs(&domain, &how, &options, &cache), PINFOLD_OK) << pinfold_last_error()->message;
  region.lkey = 7;
  for (int i = 0; i < 3; ++i) {
    const auto lease = pinfold_acquire(cache, reinterpret_cast<void*>(0x1000), 0x1000, PINFOLD_LOCAL_READ);
    ASSERT_NE(lease.pin, 0U) << pinfold_last_error()->message;
    const auto* made = static_cast<const pinfold_verbs_registration*>(pinfold_registration_of(lease));
    EXPECT_EQ(made->mr, &region);
    EXPECT_EQ(made->lkey, 7U);
    EXPECT_EQ(pinfold_release(lease), PINFOLD_OK);
  }
  EXPECT_EQ(registered, 1);
  EXPECT_EQ(pinfold_destroy(cache), PINFOLD_OK);
  EXPECT_EQ(deregistered, 1);
}

TEST_F(verbs_fake, implicit_paging_has_no_dma_bufs) {
  const auto made = verbs_registrar::create(&domain, {.paging = verbs_paging::implicit, .dma_buf_of = dma_buf});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, errc::unsupported);
  EXPECT_EQ(registered, 0);
}

TEST_F(verbs_fake, a_failed_export_of_a_dma_buf_is_the_result_of_the_open) {
  auto all = registrar({.dma_buf_from = [](const range&) -> result<std::optional<verbs_dma_buf>> {
    return fail_errno(errc::driver_error, ENOSPC, "the driver exports nothing");
  }});
  EXPECT_EQ(all.open({0x1000, 0x2000}, local_access).error().native, ENOSPC);
  EXPECT_EQ(registered, 0);
  const auto both = verbs_registrar::create(
      &domain, {.dma_buf_of = dma_buf, .dma_buf_from = [](const range& memory) { return dma_buf(memory); }});
  EXPECT_EQ(both.error(), errc::invalid_argument);
}

#if defined(PINFOLD_HAS_REG_DMABUF_MR)
TEST_F(verbs_fake, rails_register_duplicates_of_one_dma_buf) {
  int exports = 0;
  shared_dma_buf shared([&](const range&) -> result<std::optional<exported_dma_buf>> {
    ++exports;
    return exported_dma_buf{::open("/dev/null", O_RDONLY | O_CLOEXEC), {0x0, 0x10000}, 0};
  });
  const auto request = shared.begin({0x1000, 0x2000});
  for (int rail = 0; rail < 3; ++rail) {
    auto one = registrar({.dma_buf_from = shared.provider<verbs_dma_buf>()});
    auto made = one.open({0x1000, 0x2000}, local_access);
    ASSERT_TRUE(made) << describe(made.error());
    EXPECT_TRUE(one.close(*made));
  }
  EXPECT_EQ(exports, 1);
  EXPECT_EQ(registered, 3);
}

TEST_F(verbs_fake, a_dma_buf_is_registered_without_paging_on_demand) {
  auto paged = registrar({.paging = verbs_paging::on_demand, .dma_buf_of = dma_buf});
  auto made = paged.open({0x1000, 0x2000}, local_access);
  ASSERT_TRUE(made) << describe(made.error());
  EXPECT_EQ(last_access, unsigned{IBV_ACCESS_LOCAL_WRITE});
  EXPECT_TRUE(paged.close(*made));
}
#endif

}  // namespace
}  // namespace pinfold::testing
