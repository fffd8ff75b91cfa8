// SPDX-License-Identifier: BSD-3-Clause
// Random histories of two caches with registration in the background, restorations and sets: R42, R65, R36, R47.
#include "model/start_up_model.hpp"
#include "core/deadlines.hpp"
#include "support/doubles/fake_registrar.hpp"

#include <cstdint>
#include <memory>

namespace pinfold::testing::start_up_model_test {
namespace {

struct device_world {
  using registrar_type = fake_registrar;
  std::shared_ptr<fake_device> device = std::make_shared<fake_device>();
  std::uintptr_t begin = 0, unit = 1;

  [[nodiscard]] registrar_type registrar() const { return registrar_type(device); }
  static std::uint64_t number_of(const registrar_type::registration_type& made) { return made.key; }
  static bool sound() { return true; }
};

TEST(start_up_model, agrees_with_the_oracle_after_every_step) {
  core::longest_transient_pin = {};  // no thread is inside a hit while the model acts
  expect_agreement<start_up_model>(model_steps() / 4, [] { return device_world(); });
}

}  // namespace
}  // namespace pinfold::testing::start_up_model_test
