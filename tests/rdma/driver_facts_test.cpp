// SPDX-License-Identifier: BSD-3-Clause
// The libraries that `pinfold info` loads for its RDMA report, on a host that has a device.
#include <gtest/gtest.h>

#include <cstdlib>
#include <dlfcn.h>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace pinfold::testing::driver_facts_test {
namespace {

using json = nlohmann::json;

json facts_from(const char* module) {
  void* const loaded = ::dlopen(module, RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr) throw std::runtime_error(::dlerror());
  return json::parse(reinterpret_cast<const char* (*)()>(::dlsym(loaded, "pinfold_driver_facts"))());
}

TEST(driver_facts, verbs_reports_the_soft_RoCE_device) {
  const auto facts = facts_from(PINFOLD_VERBS_FACTS);
  EXPECT_TRUE(facts.at("works"));
  const auto& device = facts.at("devices").at(0);
  EXPECT_EQ(device.at("name"), "rxe0");
  EXPECT_EQ(device.at("why_not"), "");
  EXPECT_GT(device.at("regions"), 0U);
  EXPECT_GT(device.at("largest"), 1U << 20U);
  EXPECT_TRUE(device.at("atomics"));
  EXPECT_FALSE(device.at("dma_bufs")) << "soft-RoCE has none";
}

#if defined(PINFOLD_LIBFABRIC_FACTS)
bool caches_too() { return facts_from(PINFOLD_LIBFABRIC_FACTS).at("caches_too"); }

TEST(driver_facts, libfabric_over_hardware_has_its_own_cache_until_it_is_turned_off) {
  // NOLINTBEGIN(concurrency-mt-unsafe): no other thread here
  ::unsetenv("FI_MR_CACHE_MAX_COUNT");
  EXPECT_TRUE(caches_too());
  ::setenv("FI_MR_CACHE_MAX_COUNT", "0", 1);
  EXPECT_FALSE(caches_too());
  // NOLINTEND(concurrency-mt-unsafe)
}
#endif

}  // namespace
}  // namespace pinfold::testing::driver_facts_test
