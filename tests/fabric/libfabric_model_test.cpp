// SPDX-License-Identifier: BSD-3-Clause
// Random histories of a cache over a real provider, against the oracle of local_cache_model_test.cpp: R20-R24, R27,
// R28, R41, R43, R49. What the provider has open is counted after every step.
#include "fabric/node.hpp"
#include "fabric/watched_domain.hpp"
#include "model/local_model.hpp"
#include "model/real_world.hpp"

namespace pinfold::testing::libfabric_model_test {
namespace {

class libfabric_model : public ::testing::TestWithParam<const char*> {};

TEST_P(libfabric_model, agrees_with_the_oracle_after_every_step) {
  if (!offered_by(GetParam())) GTEST_SKIP() << "libfabric has no provider " << GetParam() << " here";
  const node here(GetParam());
  const watched_domain domain(here.domain());
  const test_pages memory(2000);
  expect_agreement<local_model>(model_steps(), [&] {
    real_world<libfabric_registrar> world(memory, [&] { return here.registrar(); });
    world.agrees = [&](const auto& noted) { return domain.open_count() == noted.device->open_count(); };
    return world;
  });
  EXPECT_EQ(domain.open_count(), 0U);
}

std::string name_of_provider(const ::testing::TestParamInfo<const char*>& info) {
  const std::string name = info.param;
  return name.substr(0, name.find(';'));
}
INSTANTIATE_TEST_SUITE_P(over, libfabric_model, ::testing::Values("tcp;ofi_rxm", "sockets", "shm"), name_of_provider);

}  // namespace
}  // namespace pinfold::testing::libfabric_model_test
