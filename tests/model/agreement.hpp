// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// How long a property is tried with random histories, and how to replay a failure.
#pragma once

#include "support/host/settings.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

namespace pinfold::testing {

/// Expects the property, of a setup and a history, to hold for random ones of about `steps` steps in all.
template <class Property>
void expect_agreement(std::uint64_t steps, Property&& property) {
  constexpr std::uint64_t longest = 200;  // steps of a history, a quarter of it on average
  const auto histories = 1 + steps * 11 / 10 / (longest / 4);
  const auto parameters = "seed=" + std::to_string(test_seed()) + " max_success=" + std::to_string(histories) +
                          " max_size=" + std::to_string(longest);
  if (std::getenv("RC_PARAMS") == nullptr) ::setenv("RC_PARAMS", parameters.c_str(), 1);
  EXPECT_TRUE(rc::check(std::forward<Property>(property)))
      << "replay with PINFOLD_TEST_SEED=" << test_seed() << ", or this history with the RC_PARAMS above";
}

}  // namespace pinfold::testing
