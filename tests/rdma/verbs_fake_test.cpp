// SPDX-License-Identifier: BSD-3-Clause
// Features that an emulated device lacks: paging on demand, and dma-bufs. Runs without a device, over functions of
// libibverbs' names that only count.
#include <pinfold/dma_buf.hpp>
#include <pinfold/registrars/verbs.hpp>
#include <pinfold/verbs.h>

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <optional>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

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

namespace pinfold::testing::verbs_fake_test {
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
  how.windows = 1;
  how.size = offsetof(pinfold_verbs_options, windows);  // as in a program of before that member
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
  EXPECT_EQ(last_access & IBV_ACCESS_MW_BIND, 0U);
  EXPECT_EQ(pinfold_destroy(cache), PINFOLD_OK);
  EXPECT_EQ(deregistered, 1);
  how.size = sizeof how;
  ASSERT_EQ(pinfold_create_verbs(&domain, &how, &options, &cache), PINFOLD_OK);
  EXPECT_EQ(pinfold_release(pinfold_acquire(cache, reinterpret_cast<void*>(0x1000), 0x1000, PINFOLD_LOCAL_READ)),
            PINFOLD_OK);
  EXPECT_NE(last_access & IBV_ACCESS_MW_BIND, 0U);
  EXPECT_EQ(pinfold_destroy(cache), PINFOLD_OK);
}

TEST_F(verbs_fake, implicit_paging_has_no_dma_bufs) {
  const auto made = verbs_registrar::create(&domain, {.paging = verbs_paging::implicit, .dma_buf_of = dma_buf});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, errc::unsupported);
  EXPECT_EQ(registered, 0);
}

struct advised {
  ibv_advise_mr_advice advice;
  std::uint32_t flags;
  std::vector<std::pair<std::uint64_t, std::uint32_t>> pieces;
};
std::vector<advised> advices;
int advice_refused = 0;
int advise(ibv_pd*, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* pieces, std::uint32_t count) {
  advices.push_back({advice, flags, {}});
  for (std::uint32_t i = 0; i < count; ++i) advices.back().pieces.emplace_back(pieces[i].addr, pieces[i].length);
  return advice_refused;
}

struct verbs_prefetch_fake : verbs_fake {
  verbs_prefetch_fake() {
    advices.clear();
    advice_refused = 0;
    device.advise_mr = advise;
    region.addr = reinterpret_cast<void*>(0x100000);
    region.length = std::size_t{20} << 30U;
  }
  ~verbs_prefetch_fake() override { region = {}; }
};

TEST_F(verbs_prefetch_fake, advises_in_pieces_that_the_device_can_take) {
  auto paged = registrar({.paging = verbs_paging::on_demand});
  const auto made = paged.open({0x100000, 0x200000}, local_access);
  ASSERT_TRUE(made);
  EXPECT_TRUE(advices.empty()) << "only on request";
  const range most{0x100000, 0x100000 + (std::size_t{17} << 30U) + 0x1000};
  ASSERT_TRUE(paged.prefetch(*made, most, local_access, verbs_prefetch::wait));
  ASSERT_EQ(advices.size(), 2U);
  EXPECT_EQ(advices[0].pieces.size(), 16U);
  EXPECT_EQ(advices[0].flags, std::uint32_t{IBV_ADVISE_MR_FLAG_FLUSH});
  EXPECT_EQ(advices[0].advice, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE);
  std::uint64_t next = most.begin;
  for (const auto& one : advices)
    for (const auto& [begin, bytes] : one.pieces) {
      EXPECT_EQ(begin, next);
      next += bytes;
    }
  EXPECT_EQ(next, most.end);
  ASSERT_TRUE(paged.prefetch(*made, {0x100000, 0x101000}, access_flags::local_read));
  EXPECT_EQ(advices[2].advice, IBV_ADVISE_MR_ADVICE_PREFETCH);
  EXPECT_EQ(advices[2].flags, 0U);
  ASSERT_TRUE(paged.prefetch(*made, {0x100000, 0x101000}, local_access, verbs_prefetch::present));
  EXPECT_EQ(advices[3].advice, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT);
  EXPECT_TRUE(paged.close(*made));
}

TEST_F(verbs_prefetch_fake, refuses_what_cannot_be_prefetched) {
  auto pinned = registrar({});
  const auto fixed = pinned.open({0x100000, 0x200000}, local_access);
  EXPECT_EQ(pinned.prefetch(*fixed, {0x100000, 0x101000}, local_access).error(), errc::unsupported);
  auto paged = registrar({.paging = verbs_paging::on_demand});
  const auto made = paged.open({0x100000, 0x200000}, local_access);
  EXPECT_EQ(paged.prefetch({}, {0x100000, 0x101000}, local_access).error(), errc::invalid_argument);
  EXPECT_EQ(paged.prefetch(*made, {0x100000, 0x100000}, local_access).error(), errc::invalid_range);
  EXPECT_EQ(paged.prefetch(*made, {0xff000, 0x101000}, local_access).error(), errc::invalid_range);
  EXPECT_TRUE(advices.empty());
  for (const auto& [native, code] : {std::pair(EOPNOTSUPP, errc::unsupported), std::pair(EFAULT, errc::invalid_range),
                                     std::pair(EPERM, errc::not_permitted), std::pair(EIO, errc::driver_error)}) {
    advice_refused = native;
    const auto refused = paged.prefetch(*made, {0x100000, 0x101000}, local_access);
    EXPECT_EQ(refused.error(), code);
    EXPECT_EQ(refused.error().native, native);
  }
  device.advise_mr = nullptr;
  EXPECT_EQ(paged.prefetch(*made, {0x100000, 0x101000}, local_access).error(), errc::unsupported);
}

TEST_F(verbs_prefetch_fake, prefetch_on_open_opens_nothing_if_it_fails) {
  auto paged = registrar({.paging = verbs_paging::on_demand, .prefetch_on_open = true});
  ASSERT_TRUE(paged.open({0x100000, 0x200000}, access_flags::local_read));
  ASSERT_EQ(advices.size(), 1U);
  EXPECT_EQ(advices[0].advice, IBV_ADVISE_MR_ADVICE_PREFETCH);
  advice_refused = EIO;
  EXPECT_EQ(paged.open({0x100000, 0x200000}, local_access).error().native, EIO);
  EXPECT_EQ(registered, 2);
  EXPECT_EQ(deregistered, 1);
}

// What the device is asked about a window, and when.
int windows_now = 0, refuse_alloc = 0, refuse_post = 0, refuse_free = 0;
ibv_mw the_window{};
ibv_send_wr posted{};
ibv_mw* alloc_window(ibv_pd* of, ibv_mw_type type) {
  if (refuse_alloc != 0) return errno = refuse_alloc, nullptr;
  the_window = {of->context, of, 0x1ff, 0, type};
  return ++windows_now, &the_window;
}
int free_window(ibv_mw*) { return refuse_free != 0 ? refuse_free : (--windows_now, 0); }
int post(ibv_qp*, ibv_send_wr* work, ibv_send_wr** bad) {
  if (refuse_post != 0) *bad = work;
  posted = *work;
  return refuse_post;
}

struct verbs_window_fake : verbs_fake {
  verbs_window_fake() {
    windows_now = refuse_alloc = refuse_post = refuse_free = 0;
    device.context.ops.alloc_mw = alloc_window;
    device.context.ops.dealloc_mw = free_window;
    device.context.ops.post_send = post;
    pair.context = &device.context;
    region.addr = reinterpret_cast<void*>(0x1000);
    region.length = 0x1000;
    region.pd = &domain;
  }
  ~verbs_window_fake() override { region = {}; }
  auto bind(range memory = {0x1000, 0x2000}, access_flags access = access_flags::remote_read) {
    return verbs_window::bind(&pair, {&region, 0, 0}, memory, access);
  }
  ibv_qp pair{};
};

TEST_F(verbs_window_fake, binds_with_a_new_key_and_frees_once) {
  auto all = registrar({.windows = true});
  ASSERT_TRUE(all.open({0x1000, 0x2000}, local_access));
  EXPECT_EQ(last_access, unsigned{IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND});
  auto window = bind({0x1800, 0x2000}, access_flags::remote_write);
  ASSERT_TRUE(window) << describe(window.error());
  EXPECT_EQ(posted.opcode, IBV_WR_BIND_MW);
  EXPECT_EQ(posted.bind_mw.rkey, window->rkey());
  EXPECT_EQ(window->rkey(), 0x100U) << "the owner chooses the lowest byte of the key, another one for each bind";
  EXPECT_EQ(posted.bind_mw.bind_info.addr, 0x1800U);
  EXPECT_EQ(posted.bind_mw.bind_info.length, 0x800U);
  EXPECT_EQ(posted.bind_mw.bind_info.mw_access_flags, unsigned{IBV_ACCESS_REMOTE_WRITE});
  auto copy = *window;
  EXPECT_TRUE(copy.withdraw());
  EXPECT_TRUE(window->withdraw()) << "there is nothing more to do";
  EXPECT_EQ(windows_now, 0);
}

TEST_F(verbs_window_fake, any_refused_call_leaves_no_window) {
  refuse_alloc = ENOMEM;
  EXPECT_EQ(bind().error(), errc::out_of_resources);
  refuse_alloc = EIO;
  EXPECT_EQ(bind().error().native, EIO);
  refuse_alloc = 0;
  refuse_post = EINVAL;
  EXPECT_EQ(bind().error().native, EINVAL);
  EXPECT_EQ(windows_now, 0);
  refuse_post = 0;
  device.context.ops.alloc_mw = nullptr;
  EXPECT_EQ(bind().error(), errc::unsupported);
  EXPECT_EQ(bind({0x1000, 0x2001}).error(), errc::invalid_range);
  EXPECT_EQ(bind({0x1000, 0x1000}).error(), errc::invalid_range);
  EXPECT_EQ(bind({0x1000, 0x2000}, local_access).error(), errc::invalid_argument);
  EXPECT_EQ(verbs_window::bind(nullptr, {&region, 0, 0}, {0x1000, 0x2000}, access_flags::remote_read).error(),
            errc::invalid_argument);
}

TEST_F(verbs_window_fake, a_refused_withdrawal_can_be_repeated) {
  {
    auto window = bind();
    ASSERT_TRUE(window);
    refuse_free = EBUSY;
    EXPECT_EQ(window->withdraw().error().native, EBUSY);
    EXPECT_EQ(windows_now, 1);
    refuse_free = 0;
  }
  EXPECT_EQ(windows_now, 0) << "the end of the object tried again";
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
}  // namespace pinfold::testing::verbs_fake_test
