// SPDX-License-Identifier: BSD-3-Clause
// libfabric's own registration cache: where there is one, and how it is turned off.
#include "fabric/fake_domain.hpp"

#include <pinfold/registrars/libfabric.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>

namespace pinfold::testing::libfabric_second_cache_test {
namespace {

class libfabric_cache : public ::testing::Test {
 protected:
  // NOLINTBEGIN(concurrency-mt-unsafe): no other thread here
  libfabric_cache() {
    for (const auto* one : {"FI_MR_CACHE_MAX_COUNT", "FI_MR_CACHE_MONITOR", "FI_EFA_MR_CACHE_ENABLE"}) ::unsetenv(one);
  }
  static void set(const char* variable, const char* value) { ::setenv(variable, value, 1); }
  static std::string get(const char* variable) { return std::getenv(variable); }
  // NOLINTEND(concurrency-mt-unsafe)

  static bool caches_too(std::string provider, int mr_mode = 0, std::uint64_t capabilities = FI_MSG) {
    fake_domain domain(mr_mode, capabilities);
    domain.fabric.prov_name = provider.data();
    return libfabric_caches_too(&domain.info);
  }
};

TEST_F(libfabric_cache, libfabric_caches_only_for_hardware_providers) {
  EXPECT_TRUE(caches_too("verbs;ofi_rxm"));
  EXPECT_TRUE(libfabric_caches_too(nullptr)) << "unknown: assumed";
  for (const auto* copies : {"tcp", "tcp;ofi_rxm", "net", "udp;ofi_rxd", "sockets", "shm"})
    EXPECT_FALSE(caches_too(copies)) << copies;
}

TEST_F(libfabric_cache, cache_is_turned_off_unless_the_environment_enables_it) {
  set("FI_MR_CACHE_MAX_COUNT", "100");
  EXPECT_FALSE(turn_off_libfabric_cache()) << "the environment asks for it";
  EXPECT_EQ(get("FI_MR_CACHE_MAX_COUNT"), "100");
  EXPECT_EQ(get("FI_EFA_MR_CACHE_ENABLE"), "0");
  EXPECT_TRUE(caches_too("verbs"));
  set("FI_MR_CACHE_MAX_COUNT", "0");
  EXPECT_TRUE(turn_off_libfabric_cache());
  EXPECT_FALSE(caches_too("verbs"));
  set("FI_EFA_MR_CACHE_ENABLE", "1");
  EXPECT_FALSE(turn_off_libfabric_cache());
}

TEST_F(libfabric_cache, disabled_monitor_turns_off_the_cache_of_system_memory_only) {
  set("FI_MR_CACHE_MONITOR", "disabled");
  EXPECT_FALSE(caches_too("verbs"));
  EXPECT_TRUE(caches_too("verbs", FI_MR_HMEM, FI_MSG | FI_HMEM));
  EXPECT_TRUE(turn_off_libfabric_cache());
  EXPECT_FALSE(caches_too("verbs", FI_MR_HMEM, FI_MSG | FI_HMEM));
}

TEST_F(libfabric_cache, cache_of_EFA_has_its_own_variable) {
  set("FI_MR_CACHE_MAX_COUNT", "0");
  EXPECT_TRUE(caches_too("efa"));
  EXPECT_FALSE(caches_too("efa", FI_MR_LOCAL)) << "the program registers";
  for (const auto* off : {"0", "no", "off", "false"}) {
    set("FI_EFA_MR_CACHE_ENABLE", off);
    EXPECT_FALSE(caches_too("efa")) << off;
  }
  set("FI_EFA_MR_CACHE_ENABLE", "1");
  EXPECT_TRUE(caches_too("efa;ofi_rxd"));
}

TEST_F(libfabric_cache, second_cache_has_to_be_accepted) {
  fake_domain domain(0);
  std::string verbs = "verbs;ofi_rxm";
  domain.fabric.prov_name = verbs.data();
  const auto refused = libfabric_registrar::create(&domain.domain, &domain.info);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, errc::unsupported);
  EXPECT_NE(std::string(refused.error().message).find("turn_off_libfabric_cache"), std::string::npos);
  EXPECT_TRUE(libfabric_registrar::create(&domain.domain, &domain.info, {.accept_second_cache = true}));
  ASSERT_TRUE(turn_off_libfabric_cache());
  EXPECT_TRUE(libfabric_registrar::create(&domain.domain, &domain.info));
}

}  // namespace
}  // namespace pinfold::testing::libfabric_second_cache_test
