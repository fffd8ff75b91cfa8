// SPDX-License-Identifier: BSD-3-Clause
// A release takes two steps: it removes the pin, and then does what is due. Between the two, the cache may have changed
// the entry, or ended: nothing may stay open, and nothing be closed twice (R10, R42).
#include <pinfold/detail/engine.hpp>
#include <pinfold/detail/hit.hpp>

#include <gtest/gtest.h>

namespace pinfold::testing::late_release_test {
namespace {

using namespace detail;

/// A driver that counts its calls.
struct counting_driver {
  int opens = 0;
  int closes = 0;

  static result<range> check(const void* /*self*/, const request& what) noexcept { return what.wanted; }
  static result<opened> open(void* self, const open_request& what) noexcept {
    ++static_cast<counting_driver*>(self)->opens;
    return opened{what.extent, reinterpret_cast<void*>(what.extent.begin), what.extent.size(), {}};
  }
  static result<void> close(void* self, const registration& /*object*/) noexcept {
    ++static_cast<counting_driver*>(self)->closes;
    return {};
  }
  [[nodiscard]] driver table() {
    return {.self = this,
            .name = "counting",
            .token_bytes = 0,
            .object_bytes = 8,
            .allows_duplicates = true,
            .check = check,
            .open = open,
            .close = close};
  }
};

constexpr range memory{0x10000, 0x20000};

class late_release : public ::testing::Test {
 protected:
  void begin(cache_options options) {
    options.monitor = monitor_choice::manual;
    engine_ = make_engine(device_.table(), std::move(options));
  }
  pin acquired() {
    auto got = detail::acquire(engine_.get(), {.wanted = memory});
    EXPECT_TRUE(got);
    return got->held;
  }
  static void released(pin held) {
    if (const auto* due = unpin(held)) {
      EXPECT_TRUE(finish_release(due));
    }
  }

  counting_driver device_;
  engine_handle engine_;
};

TEST_F(late_release, release_of_an_invalidated_entry_after_the_cache_ended_is_harmless) {
  begin({});
  released(acquired());
  const auto hit = look_up(engine_.get(), memory.begin, memory.end, access_flags::none);
  ASSERT_NE(hit.held, 0U);
  invalidate(engine_.get(), {}, memory);
  const auto* due = unpin(hit.held);
  ASSERT_NE(due, nullptr);
  engine_.reset();
  EXPECT_EQ(device_.closes, 1) << "the thread that ends the cache does the due closes";
  EXPECT_TRUE(finish_release(due));
  EXPECT_EQ(device_.closes, device_.opens);
}

TEST_F(late_release, release_of_an_unretained_entry_after_the_cache_ended_is_harmless) {
  begin({.retain = false});
  const auto* due = unpin(acquired());
  ASSERT_NE(due, nullptr);
  engine_.reset();
  EXPECT_EQ(device_.closes, 1);
  EXPECT_TRUE(finish_release(due));
  EXPECT_EQ(device_.closes, device_.opens);
}

TEST_F(late_release, release_after_flush_closed_the_entry_is_harmless) {
  for (const bool retain : {true, false}) {
    begin({.retain = retain});
    const auto held = acquired();
    if (retain) invalidate(engine_.get(), {}, memory);
    const auto* due = unpin(held);
    ASSERT_NE(due, nullptr);
    EXPECT_TRUE(flush(engine_.get()));
    EXPECT_EQ(device_.closes, device_.opens);
    EXPECT_TRUE(finish_release(due));
    EXPECT_EQ(device_.closes, device_.opens);
  }
}

TEST_F(late_release, release_does_not_affect_the_next_use_of_the_entry) {
  begin({});
  const auto held = acquired();
  invalidate(engine_.get(), {}, memory);
  const auto* due = unpin(held);
  EXPECT_TRUE(progress(engine_.get()));
  const auto again = acquired();
  EXPECT_EQ(record_of(again), due) << "memory of entries is reused";
  EXPECT_TRUE(finish_release(due));
  EXPECT_EQ(device_.closes, 1);
  released(again);
  EXPECT_EQ(device_.closes, 1) << "kept";
}

TEST_F(late_release, release_of_the_last_lease_after_the_cache_ended_is_harmless) {
  begin({.drain_timeout = std::chrono::milliseconds(0)});
  const auto one = acquired();
  const auto other = acquired();
  engine_.reset();
  EXPECT_EQ(device_.closes, 1);
  const auto* first = unpin(one);
  const auto* second = unpin(other);
  EXPECT_TRUE(finish_release(first));
  EXPECT_TRUE(finish_release(second));
  EXPECT_EQ(device_.closes, 1);
}

}  // namespace
}  // namespace pinfold::testing::late_release_test
