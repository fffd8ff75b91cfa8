// SPDX-License-Identifier: BSD-3-Clause
// The calls that the registrar makes on a domain, and how it takes the answers, under every rule a provider may have.
#include "fabric/fake_domain.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/libfabric.h>
#include <pinfold/registrars/libfabric.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pinfold::testing::libfabric_domain_test {
namespace {

constexpr range memory{0x10000, 0x13000};

std::uint64_t flags_for(access_flags access, int mr_mode = 0) {
  fake_domain domain(mr_mode, FI_MSG | FI_RMA | FI_REMOTE_READ | FI_REMOTE_WRITE | FI_ATOMIC);
  auto registrar = domain.registrar();
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
  EXPECT_EQ(messages.registrar().limits().supported, local_access);
  EXPECT_EQ(messages.registrar().open(memory, access_flags::remote_read).error().code, errc::unsupported);
  EXPECT_TRUE(messages.asked.empty());
}

TEST(libfabric_domain, RMA_without_a_direction_is_all_directions) {
  const auto remote = access_flags::remote_read | access_flags::remote_write;
  const auto with = [](std::uint64_t capabilities) {
    fake_domain domain(0, capabilities);
    return domain.registrar().limits().supported;
  };
  EXPECT_EQ(with(FI_RMA), local_access | remote);
  EXPECT_EQ(with(FI_ATOMIC), local_access | remote | access_flags::remote_atomic);
  EXPECT_EQ(with(FI_RMA | FI_WRITE), local_access);
  EXPECT_EQ(with(FI_RMA | FI_REMOTE_READ), local_access | access_flags::remote_read);
}

TEST(libfabric_domain, exactly_the_range_is_registered) {
  fake_domain domain(0);
  auto registrar = domain.registrar();
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
    auto made = domain.registrar().open(memory, access_flags::remote_read);
    ASSERT_TRUE(made);
    EXPECT_EQ(made->peer_address(mine), said) << mode;
  }
}

TEST(libfabric_domain, a_region_of_an_endpoint_is_bound_and_enabled) {
  fake_domain domain(FI_MR_ENDPOINT);
  EXPECT_EQ(libfabric_registrar::create(&domain.domain, &domain.info).error().code, errc::invalid_argument);
  ::fid_ep endpoint{};
  auto registrar = domain.registrar({.endpoint = &endpoint});
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
  ASSERT_TRUE(domain.registrar({.endpoint = &endpoint}).open(memory, local_access));
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
  auto registrar = domain.registrar(options);
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
  const auto rules = domain.registrar().rules();
  EXPECT_TRUE(rules.local && rules.allocated && rules.provider_keys && rules.virtual_addresses && rules.device_memory);
  EXPECT_FALSE(rules.endpoint || rules.collective);
  EXPECT_EQ(rules.regions, 12U);
  fake_domain old(FI_MR_BASIC);
  old.info.mode = FI_LOCAL_MR;
  EXPECT_TRUE(old.registrar().rules().local && old.registrar().rules().provider_keys);
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
    auto registrar = domain.registrar();
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
  auto registrar = domain.registrar();
  ASSERT_TRUE(registrar.open(memory, local_access));
  domain.refuse = -FI_ENOMEM;
  const std::string said = registrar.open(memory, local_access).error().message;
  EXPECT_NE(said.find("mr_cnt"), std::string::npos) << said;
}

TEST(libfabric_domain, refused_close_keeps_the_region_and_its_key) {
  fake_domain domain(0);
  auto registrar = domain.registrar({.first_key = 5});
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
    cache keeping{domain.registrar(), {.monitor = monitor_choice::manual}};
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

TEST(libfabric_domain, region_that_could_be_neither_enabled_nor_closed_is_closed_later) {
  for (const bool by_its_end : {false, true}) {
    fake_domain domain(FI_MR_ENDPOINT);
    ::fid_ep endpoint{};
    {
      auto registrar = domain.registrar({.endpoint = &endpoint});
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

}  // namespace
}  // namespace pinfold::testing::libfabric_domain_test
