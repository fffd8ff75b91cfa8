// SPDX-License-Identifier: BSD-3-Clause
// Random histories of a cache of local memory over a device that pretends: R20-R24, R27, R28, R41, R43, R49.
#include "model/local_model.hpp"
#include "support/doubles/fake_registrar.hpp"
#include "support/doubles/through_c.hpp"

#include <cstdint>
#include <memory>

namespace pinfold::testing::local_cache_model_test {
namespace {

struct device_world {
  using registrar_type = fake_group_registrar;
  std::shared_ptr<fake_device> device = std::make_shared<fake_device>();
  std::uintptr_t begin = 0, unit = 1;

  [[nodiscard]] registrar_type registrar() const { return registrar_type(device); }
  static std::uint64_t number_of(const registrar_type::registration_type& made) { return made.key; }
  static bool sound() { return true; }
};

/// Ranges lie within and across the cells of the first two levels.
struct spread_world : device_world {
  static constexpr std::uint32_t shards = 8;
  spread_world() { unit = 131072; }
};

TEST(local_cache_model, with_shards_agrees_with_the_oracle_after_every_step) {
  expect_agreement<local_model>(model_steps(), [] { return spread_world(); });
}

TEST(local_cache_model, agrees_with_the_oracle_after_every_step) {
  expect_agreement<local_model>(model_steps(), [] { return device_world(); });
}

template <class World>
using c_model = local_model<World, through_c>;

TEST(c_cache_model, agrees_with_the_oracle_after_every_step) {
  expect_agreement<c_model>(model_steps(), [] { return device_world(); });
}

}  // namespace
}  // namespace pinfold::testing::local_cache_model_test
