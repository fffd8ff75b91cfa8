// SPDX-License-Identifier: BSD-3-Clause
// Keys of regions, where the registrar chooses them.
#include "fabric/fake_domain.hpp"

#include <pinfold/registrars/libfabric.hpp>

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace pinfold::testing::libfabric_keys_test {
namespace {

constexpr range memory{0x10000, 0x13000};

// A domain with 256 keys.
struct narrow_domain : fake_domain {
  explicit narrow_domain(int mr_mode = 0) : fake_domain(mr_mode) { attributes.mr_key_size = 1; }
};

TEST(libfabric_keys, provider_chooses_the_keys_with_FI_MR_PROV_KEY) {
  fake_domain domain(FI_MR_PROV_KEY);
  EXPECT_EQ(domain.registrar().open(memory, local_access)->key, 70U);
}

TEST(libfabric_keys, narrow_key_wraps_and_skips_keys_in_use) {
  narrow_domain domain;
  auto registrar = domain.registrar({.first_key = 254});
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

TEST(libfabric_keys, keys_of_other_registrars_are_skipped) {
  fake_domain domain(0);
  domain.keys = {100, 101, 102};
  auto registrar = domain.registrar({.first_key = 100});
  EXPECT_EQ(registrar.open(memory, local_access)->key, 103U);
  domain.refuse = -FI_ENOKEY;
  const auto refused = registrar.open(memory, local_access);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, errc::in_use_conflict);
  EXPECT_EQ(refused.error().native, FI_ENOKEY);
}

TEST(libfabric_keys, key_FI_KEY_NOTAVAIL_is_never_requested) {
  fake_domain domain(0);
  auto registrar = domain.registrar({.first_key = FI_KEY_NOTAVAIL});
  EXPECT_NE(registrar.open(memory, local_access)->key, FI_KEY_NOTAVAIL);
}

TEST(libfabric_keys, key_of_a_region_that_could_not_be_closed_is_not_reused) {
  narrow_domain domain;
  auto registrar = domain.registrar({.first_key = 5});
  auto made = registrar.open(memory, local_access);
  ASSERT_TRUE(made);
  domain.refuse_close = -FI_EIO;
  ASSERT_TRUE(registrar.close(*made));
  domain.keys.clear();  // the provider forgot it: no FI_ENOKEY
  for (int i = 0; i < 255; ++i) ASSERT_NE(registrar.open(memory, local_access)->key, 5U);
  EXPECT_EQ(registrar.open(memory, local_access).error().code, errc::out_of_resources);
}

TEST(libfabric_keys, key_of_a_failed_open_whose_region_stays_is_not_reused) {
  narrow_domain domain(FI_MR_ENDPOINT);
  ::fid_ep endpoint{};
  auto registrar = domain.registrar({.endpoint = &endpoint, .first_key = 5});
  domain.refuse_enable = -FI_ENOMEM;
  domain.refuse_close = -FI_EBUSY;
  EXPECT_EQ(registrar.open(memory, local_access).error().code, errc::out_of_resources);
  domain.refuse_enable = 0;
  domain.keys.clear();
  for (int i = 0; i < 255; ++i) ASSERT_NE(registrar.open(memory, local_access)->key, 5U);
}

}  // namespace
}  // namespace pinfold::testing::libfabric_keys_test
