// SPDX-License-Identifier: BSD-3-Clause
// The calls that the registrar makes on a domain, and how it takes the answers, under every rule a provider may have.
#include "fabric/fake_domain.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/libfabric.h>
#include <pinfold/registrars/libfabric.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pinfold::testing {
namespace {

constexpr range memory{0x10000, 0x13000};

libfabric_registrar on(fake_domain& domain, libfabric_registrar_options options = {}) {
  auto made = libfabric_registrar::create(&domain.domain, &domain.info, std::move(options));
  if (!made) throw std::runtime_error(describe(made.error()));
  return std::move(*made);
}

std::uint64_t flags_for(access_flags access, int mr_mode = 0) {
  fake_domain domain(mr_mode, FI_MSG | FI_RMA | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_ATOMIC);
  auto registrar = on(domain);
  auto made = registrar.open(memory, access);
  if (!made) throw std::runtime_error(describe(made.error()));
  return registrar.close(*made) ? domain.asked.at(0).access : 0;
}

TEST(libfabric_domain, rights_are_translated_to_flags) {
  EXPECT_EQ(flags_for(access_flags::local_read), FI_SEND | FI_WRITE);
  EXPECT_EQ(flags_for(access_flags::local_write), FI_RECV | FI_READ);
  EXPECT_EQ(flags_for(access_flags::remote_read), FI_REMOTE_READ);
  EXPECT_EQ(flags_for(access_flags::remote_write), FI_REMOTE_WRITE);
  EXPECT_EQ(flags_for(access_flags::remote_atomic), FI_REMOTE_READ | FI_REMOTE_WRITE);
  EXPECT_EQ(flags_for(access_flags::local_read, FI_MR_COLLECTIVE), FI_SEND | FI_WRITE | FI_COLLECTIVE);
  EXPECT_EQ(flags_for(access_flags::remote_read, FI_MR_COLLECTIVE), FI_REMOTE_READ);
}

TEST(libfabric_domain, C_interface_registers_once_and_gives_the_region) {
  fake_domain domain(0);
  pinfold_options options;
  ASSERT_EQ(pinfold_options_init(&options, sizeof options), PINFOLD_OK);
  options.monitor = PINFOLD_MONITOR_MANUAL;
  pinfold_libfabric_options how{};
  pinfold_cache* cache = nullptr;
  EXPECT_EQ(pinfold_create_libfabric(&domain.domain, &domain.info, &how, &options, &cache), PINFOLD_E_INVALID_ARGUMENT)
      << "without a size";
  EXPECT_EQ(pinfold_create_libfabric(nullptr, &domain.info, nullptr, &options, &cache), PINFOLD_E_INVALID_ARGUMENT);
  ASSERT_EQ(pinfold_create_libfabric(&domain.domain, &domain.info, nullptr, &options, &cache), PINFOLD_OK);
  for (int i = 0; i < 3; ++i) {
    const auto lease = pinfold_acquire(cache, reinterpret_cast<void*>(memory.begin), memory.size(), PINFOLD_LOCAL_READ);
    ASSERT_NE(lease.pin, 0U) << pinfold_last_error()->message;
    EXPECT_NE(static_cast<const pinfold_libfabric_registration*>(pinfold_registration_of(lease))->mr, nullptr);
    EXPECT_EQ(pinfold_release(lease), PINFOLD_OK);
  }
  EXPECT_EQ(domain.asked.size(), 1U);
  EXPECT_EQ(pinfold_destroy(cache), PINFOLD_OK);
}

TEST(libfabric_domain, rights_follow_the_capabilities) {
  fake_domain messages(0, FI_MSG);
  EXPECT_EQ(on(messages).limits().supported, local_access);
  EXPECT_EQ(on(messages).open(memory, access_flags::remote_read).error().code, errc::unsupported);
  EXPECT_TRUE(messages.asked.empty());
}

TEST(libfabric_domain, RMA_without_a_direction_is_all_directions) {
  const auto remote = access_flags::remote_read | access_flags::remote_write;
  const auto with = [](std::uint64_t capabilities) {
    fake_domain domain(0, capabilities);
    return on(domain).limits().supported;
  };
  EXPECT_EQ(with(FI_RMA), local_access | remote);
  EXPECT_EQ(with(FI_ATOMIC), local_access | remote | access_flags::remote_atomic);
  EXPECT_EQ(with(FI_RMA | FI_WRITE), local_access);
  EXPECT_EQ(with(FI_RMA | FI_REMOTE_READ), local_access | access_flags::remote_read);
}

TEST(libfabric_domain, exactly_the_range_is_registered) {
  fake_domain domain(0);
  auto registrar = on(domain);
  ASSERT_TRUE(registrar.open({0x10003, 0x10008}, local_access));
  EXPECT_EQ(domain.iovs.at(0).iov_base, reinterpret_cast<void*>(0x10003));
  EXPECT_EQ(domain.iovs.at(0).iov_len, 5U);
  EXPECT_EQ(domain.asked.at(0).iface, FI_HMEM_SYSTEM);
}

TEST(libfabric_domain, peer_address_is_an_offset_or_an_address_by_mode) {
  auto* const mine = reinterpret_cast<void*>(0x11000);
  for (const auto& [mode, said] : {std::pair{0, 0x1000U},
                                   {int{FI_MR_SCALABLE}, 0x1000U},
                                   {FI_MR_VIRT_ADDR, 0x11000U},
                                   {int{FI_MR_BASIC}, 0x11000U}}) {
    fake_domain domain(mode);
    auto made = on(domain).open(memory, access_flags::remote_read);
    ASSERT_TRUE(made);
    EXPECT_EQ(made->peer_address(mine), said) << mode;
  }
}

TEST(libfabric_domain, provider_chooses_the_keys_with_FI_MR_PROV_KEY) {
  fake_domain domain(FI_MR_PROV_KEY);
  EXPECT_EQ(on(domain).open(memory, local_access)->key, 70U);
}

// A domain with 256 keys.
struct narrow_domain : fake_domain {
  explicit narrow_domain(int mr_mode = 0) : fake_domain(mr_mode) { attributes.mr_key_size = 1; }
};

TEST(libfabric_domain, narrow_key_wraps_and_skips_keys_in_use) {
  narrow_domain domain;
  auto registrar = on(domain, {.first_key = 254});
  auto kept = registrar.open(memory, local_access);
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->key, 254U);
  for (const std::uint64_t expected : {255U, 0U, 1U}) EXPECT_EQ(registrar.open(memory, local_access)->key, expected);
  for (int i = 0; i < 252; ++i) ASSERT_TRUE(registrar.open(memory, local_access)) << i;
  const auto calls = domain.asked.size();
  auto none = registrar.open(memory, local_access);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, errc::out_of_resources);
  EXPECT_EQ(domain.asked.size(), calls) << "no key, nothing to ask";
  ASSERT_TRUE(registrar.close(*kept));
  EXPECT_EQ(registrar.open(memory, local_access)->key, 254U) << "the only one that was given back";
}

TEST(libfabric_domain, keys_of_other_registrars_are_skipped) {
  fake_domain domain(0);
  domain.keys = {100, 101, 102};
  auto registrar = on(domain, {.first_key = 100});
  EXPECT_EQ(registrar.open(memory, local_access)->key, 103U);
  domain.refuse = -FI_ENOKEY;
  const auto refused = registrar.open(memory, local_access);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, errc::in_use_conflict);
  EXPECT_EQ(refused.error().native, FI_ENOKEY);
}

TEST(libfabric_domain, key_FI_KEY_NOTAVAIL_is_never_requested) {
  fake_domain domain(0);
  auto registrar = on(domain, {.first_key = FI_KEY_NOTAVAIL});
  EXPECT_NE(registrar.open(memory, local_access)->key, FI_KEY_NOTAVAIL);
}

TEST(libfabric_domain, a_region_of_an_endpoint_is_bound_and_enabled) {
  fake_domain domain(FI_MR_ENDPOINT);
  EXPECT_EQ(libfabric_registrar::create(&domain.domain, &domain.info).error().code, errc::invalid_argument);
  ::fid_ep endpoint{};
  auto registrar = on(domain, {.endpoint = &endpoint});
  ASSERT_TRUE(registrar.open(memory, local_access));
  EXPECT_EQ(domain.bound, std::vector{&endpoint.fid});
  EXPECT_EQ(domain.enabled, 1);
  for (auto* const step : {&domain.refuse_bind, &domain.refuse_enable}) {
    *step = -FI_ENOMEM;
    EXPECT_EQ(registrar.open(memory, local_access).error().code, errc::out_of_resources);
    EXPECT_EQ(domain.regions.size(), 1U) << "a failed open leaves nothing behind";
    *step = 0;
  }
}

TEST(libfabric_domain, domain_without_FI_MR_ENDPOINT_binds_no_endpoint) {
  fake_domain domain(0);
  ::fid_ep endpoint{};
  ASSERT_TRUE(on(domain, {.endpoint = &endpoint}).open(memory, local_access));
  EXPECT_TRUE(domain.bound.empty());
  EXPECT_EQ(domain.enabled, 0);
}

TEST(libfabric_domain, device_memory_is_registered_with_its_interface) {
  fake_domain without(0);
  const libfabric_registrar_options options{.device_of = [](const range& asked) {
    return asked.begin == memory.begin ? std::optional(libfabric_device_memory{libfabric_interface::cuda, 3})
                                       : std::nullopt;
  }};
  EXPECT_EQ(libfabric_registrar::create(&without.domain, &without.info, options).error().code, errc::unsupported);
  fake_domain domain(FI_MR_HMEM, FI_MSG | FI_HMEM);
  auto registrar = on(domain, options);
  ASSERT_TRUE(registrar.open(memory, local_access));
  ASSERT_TRUE(registrar.open({1, 2}, local_access));
  EXPECT_EQ(domain.asked.at(0).iface, FI_HMEM_CUDA);
  EXPECT_EQ(domain.asked.at(0).device.cuda, 3);
  EXPECT_EQ(domain.asked.at(1).iface, FI_HMEM_SYSTEM);
}

TEST(libfabric_domain, unsupported_rules_are_refused) {
  for (const int mode : {FI_MR_RAW, FI_MR_MMU_NOTIFY}) {
    fake_domain domain(mode);
    EXPECT_EQ(libfabric_registrar::create(&domain.domain, &domain.info).error().code, errc::unsupported) << mode;
  }
  fake_domain wide(0);
  wide.attributes.mr_key_size = 16;
  EXPECT_EQ(libfabric_rules_of(&wide.info).error().code, errc::unsupported);
  EXPECT_EQ(libfabric_rules_of(nullptr).error().code, errc::invalid_argument);
  EXPECT_EQ(libfabric_registrar::create(nullptr, &wide.info).error().code, errc::invalid_argument);
}

TEST(libfabric_domain, rules_are_reported) {
  fake_domain domain(FI_MR_LOCAL | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_VIRT_ADDR, FI_MSG | FI_HMEM);
  domain.attributes.mr_cnt = 12;
  const auto rules = on(domain).rules();
  EXPECT_TRUE(rules.local && rules.allocated && rules.provider_keys && rules.virtual_addresses && rules.device_memory);
  EXPECT_FALSE(rules.endpoint || rules.collective);
  EXPECT_EQ(rules.regions, 12U);
  fake_domain old(FI_MR_BASIC);
  old.info.mode = FI_LOCAL_MR;
  EXPECT_TRUE(on(old).rules().local && on(old).rules().provider_keys);
}

TEST(libfabric_domain, refusals_keep_the_providers_code) {
  for (const auto& [native, code] : {std::pair{FI_ENOMEM, errc::out_of_resources},
                                     {FI_ENOSPC, errc::out_of_resources},
                                     {FI_EAGAIN, errc::out_of_resources},
                                     {FI_EFAULT, errc::invalid_range},
                                     {FI_EACCES, errc::not_permitted},
                                     {FI_EOPNOTSUPP, errc::unsupported},
                                     {FI_ENOSYS, errc::unsupported},
                                     {int{FI_EBADFLAGS}, errc::unsupported},
                                     {FI_EKEYREJECTED, errc::unsupported},
                                     {FI_EINVAL, errc::driver_error},
                                     {FI_ENODEV, errc::driver_error}}) {
    fake_domain domain(0);
    domain.refuse = -native;
    auto registrar = on(domain);
    const auto refused = registrar.open(memory, local_access);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, code) << native;
    EXPECT_EQ(refused.error().native, native);
    EXPECT_EQ(refused.error().kind, native_kind::libfabric);
    EXPECT_EQ(domain.asked.size(), 1U) << "only FI_ENOKEY is worth another try";
  }
}

TEST(libfabric_domain, full_domain_is_reported_with_mr_cnt) {
  fake_domain domain(0);
  domain.attributes.mr_cnt = 1;
  auto registrar = on(domain);
  ASSERT_TRUE(registrar.open(memory, local_access));
  domain.refuse = -FI_ENOMEM;
  const std::string said = registrar.open(memory, local_access).error().message;
  EXPECT_NE(said.find("mr_cnt"), std::string::npos) << said;
}

TEST(libfabric_domain, refused_close_keeps_the_region_and_its_key) {
  fake_domain domain(0);
  auto registrar = on(domain, {.first_key = 5});
  auto made = registrar.open(memory, local_access);
  ASSERT_TRUE(made);
  for (const int refused : {FI_EBUSY, FI_EAGAIN}) {
    domain.refuse_close = -refused;
    EXPECT_EQ(registrar.close(*made).error().code, errc::in_use_conflict);
    EXPECT_EQ(registrar.close(*made).error().native, refused);
    EXPECT_EQ(registrar.close(*made).error().kind, native_kind::libfabric);
    EXPECT_NE(registrar.open(memory, local_access)->key, made->key);
  }
  domain.refuse_close = 0;
  EXPECT_TRUE(registrar.close(*made));
  EXPECT_EQ(registrar.close({}).error().code, errc::invalid_argument);
}

TEST(libfabric_domain, close_that_failed_with_a_final_error_is_not_retried) {
  for (const int refused : {FI_EINVAL, FI_EIO, FI_ENODEV}) {
    fake_domain domain(0);
    cache keeping{on(domain), {.monitor = monitor_choice::manual}};
    const std::vector<char> bytes(100);
    ASSERT_TRUE(keeping.acquire(bytes.data(), bytes.size()));
    domain.refuse_close = -refused;
    keeping.flush();
    domain.refuse_close = 0;
    keeping.flush();
    EXPECT_EQ(domain.closes, 1) << "the provider may have freed it";
    EXPECT_EQ(keeping.statistics().open, 0U);
  }
}

TEST(libfabric_domain, key_of_a_region_that_could_not_be_closed_is_not_reused) {
  narrow_domain domain;
  auto registrar = on(domain, {.first_key = 5});
  auto made = registrar.open(memory, local_access);
  ASSERT_TRUE(made);
  domain.refuse_close = -FI_EIO;
  ASSERT_TRUE(registrar.close(*made));
  domain.keys.clear();  // the provider forgot it: no FI_ENOKEY
  for (int i = 0; i < 255; ++i) ASSERT_NE(registrar.open(memory, local_access)->key, 5U);
  EXPECT_EQ(registrar.open(memory, local_access).error().code, errc::out_of_resources);
}

TEST(libfabric_domain, key_of_a_failed_open_whose_region_stays_is_not_reused) {
  narrow_domain domain(FI_MR_ENDPOINT);
  ::fid_ep endpoint{};
  auto registrar = on(domain, {.endpoint = &endpoint, .first_key = 5});
  domain.refuse_enable = -FI_ENOMEM;
  domain.refuse_close = -FI_EBUSY;
  EXPECT_EQ(registrar.open(memory, local_access).error().code, errc::out_of_resources);
  domain.refuse_enable = 0;
  domain.keys.clear();
  for (int i = 0; i < 255; ++i) ASSERT_NE(registrar.open(memory, local_access)->key, 5U);
}

TEST(libfabric_domain, region_that_could_be_neither_enabled_nor_closed_is_closed_later) {
  for (const bool by_its_end : {false, true}) {
    fake_domain domain(FI_MR_ENDPOINT);
    ::fid_ep endpoint{};
    {
      auto registrar = on(domain, {.endpoint = &endpoint});
      domain.refuse_bind = -FI_EINVAL;
      domain.refuse_close = -FI_EBUSY;
      EXPECT_EQ(registrar.open(memory, local_access).error().native, FI_EINVAL);
      EXPECT_EQ(registrar.open(memory, local_access).error().native, FI_EINVAL);
      EXPECT_EQ(domain.regions.size(), 2U);
      domain.refuse_bind = domain.refuse_close = 0;
      if (by_its_end) continue;
      auto made = registrar.open(memory, local_access);
      ASSERT_TRUE(made);
      EXPECT_EQ(domain.regions.size(), 1U);
      EXPECT_TRUE(registrar.close(*made));
    }
    EXPECT_EQ(domain.regions.size(), 0U);
    EXPECT_EQ(domain.misuses, 0);
  }
}

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
}  // namespace pinfold::testing
