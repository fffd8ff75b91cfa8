// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A userfaultfd monitor for each test.
#pragma once

#include "support/watchdog.hpp"
#include "support/watched_pages.hpp"

#include <gtest/gtest.h>

#include <chrono>

namespace pinfold::testing {

class userfaultfd_monitor : public ::testing::Test {
 protected:
  void SetUp() override { PINFOLD_NEED_MONITOR(in); }

  // Expects `discard` to post `gone` by the time that it returns.
  template <class F>
  void expect_seen(const range& watched, const range& gone, F&& discard) {
    const auto told = in.watch_for(watched);
    ASSERT_TRUE(told) << describe(told.error());
    event_log_reader reader(in.event_log);
    ASSERT_TRUE(discard());
    EXPECT_TRUE(reader.lost(gone));
    in.watched.remove(watched);
  }

  uffd_monitor in;
  watchdog guard{std::chrono::seconds(30), [] {}};
};

}  // namespace pinfold::testing
