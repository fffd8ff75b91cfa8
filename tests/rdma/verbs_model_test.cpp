// SPDX-License-Identifier: BSD-3-Clause
// Random histories of a cache over a device, against the oracle of local_cache_model_test.cpp: R20-R24, R27, R28, R41,
// R43, R49. The kernel pins all registered memory, and counts it. Fewer steps than elsewhere: the machine is slow.
#include "model/local_model.hpp"
#include "model/real_world.hpp"
#include "rdma/pair.hpp"
#include "support/host/process_limits.hpp"

namespace pinfold::testing::verbs_model_test {
namespace {

TEST(verbs_model, agrees_with_the_oracle_after_every_step) {
  const rdma_device device;
  const test_pages memory(2000);
  const auto before = counted_by_kernel("VmPin");
  expect_agreement<local_model>(model_steps() / 25, [&] {
    real_world<verbs_registrar> world(memory, [&] { return device.registrar(); });
    world.agrees = [&](const auto& noted) { return counted_by_kernel("VmPin") == before + noted.bytes(); };
    return world;
  });
}

}  // namespace
}  // namespace pinfold::testing::verbs_model_test
