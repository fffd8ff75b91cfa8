// SPDX-License-Identifier: BSD-3-Clause
// Every call of libibverbs that a cache makes fails, in every way: over a pretend device, which runs anywhere and has
// all the calls, and over a real one.
#include "rdma/pair.hpp"
#include "rdma/struck_verbs.hpp"
#include "support/fixtures/local_faults.hpp"
#include "support/host/process_limits.hpp"

#include <pinfold/registrars/fallback.hpp>

#include <atomic>
#include <cstdlib>
#include <fcntl.h>
#include <string_view>
#include <utility>
#include <vector>

namespace pinfold::testing::verbs_fault_injection_test {
namespace {

using std::string_view_literals::operator""sv;

const std::vector<int> codes{ENOMEM, EINVAL, EIO, EBUSY, EAGAIN, EACCES, EPERM, EFAULT, ENODEV, EOPNOTSUPP};

struct driver_calls {
  static constexpr native_kind kind = native_kind::posix;
  static std::size_t open_count() { return verbs_now.regions.size(); }
  static std::size_t misuses() { return verbs_now.misuses; }
  static bool hidden(std::string_view /*unused*/, int /*unused*/) { return false; }
  fault_points& faults = verbs_now.faults;
};

struct fake_driver : driver_calls {
  explicit fake_driver(verbs_registrar_options as = {}) : options(std::move(as)) {}
  [[nodiscard]] result<verbs_registrar> create() { return verbs_registrar::create(&device.domain, options); }
  verbs_registrar registrar() {
    auto made = create();
    if (!made) throw std::runtime_error(describe(made.error()));
    return std::move(*made);
  }
  fake_verbs device;
  verbs_registrar_options options;
};

TEST(verbs_fault_injection_fake, R10_R41_any_fault_leaks_nothing) {
  fake_driver driver;
  expect_survival(driver, {"ibv_reg_mr_iova2", "ibv_dereg_mr"}, codes);
}

#if defined(PINFOLD_HAS_REG_DMABUF_MR)
// Single pages count as a device's memory.
std::optional<verbs_dma_buf> some_dma_buf(const range& memory) {
  if (memory.size() != test_pages::page) return std::nullopt;
  return verbs_dma_buf{::open("/dev/null", O_RDONLY | O_CLOEXEC), 0};
}

TEST(verbs_fault_injection_fake, R10_R41_any_fault_of_dma_bufs_leaks_nothing) {
  fake_driver driver({.paging = verbs_paging::on_demand, .dma_buf_of = some_dma_buf});
  local_faults<fake_driver>(driver, close_policy::immediate).survives({"", 0, 1, false});
  const int before = open_descriptors();  // includes the descriptors that a process's first cache opens and keeps
  expect_survival(driver, {"ibv_reg_mr_iova2", "ibv_reg_dmabuf_mr", "ibv_dereg_mr"}, codes);
  EXPECT_EQ(open_descriptors(), before);
}

// Three ways to register. A refused step is made good by the next one, so it is no failure of the cache.
struct fallback_driver : driver_calls {
  using made_type = verbs_registrar::registration_type;
  static bool hidden(std::string_view call, int /*unused*/) { return call != "ibv_dereg_mr"sv; }
  static result<void*> allocate(std::size_t bytes) { return ++staged, std::malloc(bytes); }
  static void free(void* memory, std::size_t /*unused*/) { --staged, std::free(memory); }
  fallback_registrar<made_type> registrar() {
    std::vector<fallback_step<made_type>> steps;
    steps.push_back(as_step("dma-buf", made({.dma_buf_of = some_dma_buf})));
    steps.push_back(as_step("peer memory", made({})));
    steps.push_back(staging_step("host staging", made({}), {allocate, free}));
    return *fallback_registrar<made_type>::create(std::move(steps));
  }
  verbs_registrar made(verbs_registrar_options options) {
    return *verbs_registrar::create(&device.domain, std::move(options));
  }
  fake_verbs device;
  static inline std::atomic<int> staged{0};
};

TEST(verbs_fault_injection_fake, R10_R41_any_fault_of_a_fallback_leaks_nothing) {
  fallback_driver driver;
  local_faults<fallback_driver>(driver, close_policy::immediate).survives({"", 0, 1, false});
  const int before = open_descriptors();
  expect_survival(driver, {"ibv_reg_mr_iova2", "ibv_reg_dmabuf_mr", "ibv_dereg_mr"}, codes);
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(fallback_driver::staged, 0);
}
#endif

TEST(verbs_fault_injection_fake, failed_creation_returns_the_reason_and_succeeds_when_repeated) {
  for (const auto paging : {verbs_paging::pinned, verbs_paging::implicit})
    for (const char* const call : {"ibv_query_device_ex", "ibv_reg_mr_iova2"})
      for (const int code : codes) {
        if (call == "ibv_query_device_ex"sv && code == EOPNOTSUPP) continue;  // the registrar then asks the older query
        SCOPED_TRACE(::testing::Message() << call << ' ' << code);
        fake_driver driver({.paging = paging});
        verbs_now.faults.fail(call, 1, code);
        const auto refused = driver.create();
        const bool reached = verbs_now.faults.struck() > 0;
        verbs_now.faults.heal();
        EXPECT_EQ(reached, !refused);
        EXPECT_EQ(reached, paging == verbs_paging::implicit || call == "ibv_query_device_ex"sv);
        EXPECT_EQ(refused ? 0 : refused.error().native, reached ? code : 0);
        EXPECT_TRUE(driver.create());
      }
  EXPECT_EQ(driver_calls::misuses(), 0U);
}

// The kernel has destroyed the device's registrations: no close is owed, though libibverbs keeps its records.
TEST(verbs_fault_injection_fake, device_removed_at_any_call_leaves_an_empty_cache) {
  for (const int code : {EIO, ENODEV})
    for (std::uint64_t nth = 1, struck = 1; struck > 0; ++nth) {
      SCOPED_TRACE(nth);
      fake_driver driver;
      pinfold::cache cache(driver.registrar(), {.max_count = 3, .monitor = monitor_choice::manual});
      const test_pages memory(8);
      verbs_now.faults.fail("any", nth, code, true);
      for (std::size_t page = 0; page < 8; ++page)
        if (auto got = cache.acquire(memory.at(page), test_pages::page); !got) {
          EXPECT_EQ(got.error(), errc::driver_error);
          EXPECT_EQ(got.error().native, code);
        }
      EXPECT_TRUE(cache.flush());
      struck = verbs_now.faults.struck();
      EXPECT_EQ(cache.statistics().open, 0U);
      EXPECT_EQ(cache.statistics().failed_closes, 0U);
      verbs_now.faults.heal();
      for (auto* const left : verbs_now.regions) delete left;
      verbs_now.regions.clear();
    }
}

struct real_driver : driver_calls {
  [[nodiscard]] verbs_registrar registrar() const { return device.registrar(); }
  rdma_device device;
};

TEST(verbs_fault_injection, R10_R41_any_fault_over_a_device_leaks_nothing) {
  const auto before = counted_by_kernel("VmPin");
  real_driver driver;
  expect_survival(driver, {"ibv_reg_mr_iova2", "ibv_dereg_mr"}, codes);
  EXPECT_EQ(counted_by_kernel("VmPin"), before);
}

}  // namespace
}  // namespace pinfold::testing::verbs_fault_injection_test
