// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Runs a part of a test that changes its process for good in a child.
#pragma once

#include "support/processes/child_process.hpp"

#include <gtest/gtest.h>

#include <cstdio>
#include <utility>

namespace pinfold::testing {

/// Runs `body` in a child, and fails where anything in it fails. Call it before the test has threads of its own.
template <class F>
void run_in_child(F&& body) {
  std::fflush(nullptr);
  child_process child([&](line&) {
    std::forward<F>(body)();
    std::fflush(nullptr);
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(child.reap(), 0);
}

}  // namespace pinfold::testing
