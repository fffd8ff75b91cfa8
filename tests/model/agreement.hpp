// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Compares a model's two sides over random histories: how long, and how to replay a failure.
#pragma once

#include "model/history.hpp"
#include "support/host/settings.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <vector>

namespace pinfold::testing {

/// Runs random histories of about `steps` steps in all, each of a `Model` over the world that `make_world` returns.
template <template <class> class Model, class MakeWorld>
void expect_agreement(std::uint64_t steps, MakeWorld make_world) {
  using model = Model<std::remove_reference_t<std::invoke_result_t<MakeWorld>>>;
  using shape = typename model::shape;
  constexpr std::uint64_t longest = 200;  // steps of a history, a quarter of it on average
  const auto histories = 1 + steps * 11 / 10 / (longest / 4);
  const auto parameters = "seed=" + std::to_string(test_seed()) + " max_success=" + std::to_string(histories) +
                          " max_size=" + std::to_string(longest);
  if (std::getenv("RC_PARAMS") == nullptr) ::setenv("RC_PARAMS", parameters.c_str(), 1);
  std::uint64_t done = 0;
  const bool agrees = rc::check([&](const setup_of<shape>& as, const std::vector<step_of<shape>>& history) {
    auto&& world = make_world();
    model run(world, as);
    for (const auto& one : history) {
      run.take(one);
      run.compare();
      ++done;
    }
    run.finish();
  });
  EXPECT_TRUE(agrees) << "replay with PINFOLD_TEST_SEED=" << test_seed()
                      << ", or this history with the RC_PARAMS above";
  std::printf("%llu steps\n", static_cast<unsigned long long>(done));
}

}  // namespace pinfold::testing
