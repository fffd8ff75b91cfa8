// SPDX-License-Identifier: BSD-3-Clause
// The rules by which a set of monitors is trusted (R53), with monitors that fail when the test says so.
#include "invalidation/monitor_set.hpp"
#include "invalidation/event_log.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>

namespace pinfold::testing::monitor_set_test {
namespace {

class fake_monitor final : public invalidation::monitor {
 public:
  explicit fake_monitor(const char* name) : name_(name) {}
  [[nodiscard]] const char* name() const noexcept override { return name_; }
  [[nodiscard]] result<void> watch(const range& /*pages*/) noexcept override {
    ++asked;
    return watches ? result<void>{} : fail(errc::unsupported, "not this memory");
  }
  [[nodiscard]] bool works() const noexcept override { return healthy; }
  [[nodiscard]] const char* why_not() const noexcept override { return "broken by the test"; }

  bool watches = true;
  bool healthy = true;
  bool restarts = true;
  bool broken_at_once = false;  // another library stops it before `restart` returns
  int asked = 0;
  int restarted = 0;

 protected:
  bool restart() noexcept override {
    ++restarted;
    healthy = restarts && !broken_at_once;
    return restarts;
  }

 private:
  const char* name_;
};

struct monitor_sets : ::testing::Test {
  std::shared_ptr<fake_monitor> first = std::make_shared<fake_monitor>("first");
  std::shared_ptr<fake_monitor> second = std::make_shared<fake_monitor>("second");
  invalidation::monitor_set both{{first, second}};
  range pages{0x1000, 0x2000};
  invalidation::event_log& event_log = invalidation::event_log::here();

  [[nodiscard]] std::uint64_t events() const { return event_log.generation().load(); }
};

TEST_F(monitor_sets, R53_set_watches_only_memory_that_all_its_monitors_watch) {
  EXPECT_TRUE(both.watch(pages));
  first->watches = false;
  EXPECT_EQ(both.watch(pages).error(), errc::unsupported);
  first->watches = true;
  second->watches = false;
  EXPECT_EQ(both.watch(pages).error(), errc::unsupported);
  EXPECT_EQ(first->asked, 3);
  EXPECT_EQ(second->asked, 3) << "each is told of all";
  EXPECT_EQ(both.changes(), 0U) << "a refusal is not a failure";
}

TEST_F(monitor_sets, R53_failed_monitor_is_restarted_after_all_memory_is_invalidated) {
  const auto before = events();
  second->healthy = false;
  EXPECT_EQ(both.not_working(), "second: broken by the test");
  EXPECT_TRUE(both.watch(pages));
  EXPECT_EQ(second->restarted, 1);
  EXPECT_EQ(events(), before + 1) << "posted once";
  EXPECT_EQ(both.failures(), 1U);
  EXPECT_EQ(both.changes(), 2U);
  EXPECT_STREQ(second->last_failure(), "broken by the test");
  EXPECT_EQ(both.not_working(), "");
  EXPECT_TRUE(both.watch(pages));
  EXPECT_EQ(events(), before + 1);
}

TEST_F(monitor_sets, R53_restart_of_a_failed_monitor_is_retried_at_intervals) {
  first->healthy = first->restarts = false;
  const auto before = events();
  const auto start = std::chrono::steady_clock::now();
  while (first->restarted < 3) ASSERT_EQ(both.watch(pages).error(), errc::closed);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 2 * invalidation::monitor::between_attempts);
  EXPECT_EQ(first->asked, 0);
  EXPECT_EQ(events(), before + 1);
  EXPECT_EQ(both.failures(), 1U);
  first->healthy = true;  // the monitor recovers by itself
  EXPECT_TRUE(both.watch(pages));
  EXPECT_EQ(both.changes(), 2U);
}

// Another copy of pinfold may change libc's code at any time; what is registered meanwhile is kept all the same.
TEST_F(monitor_sets, R53_restart_succeeds_even_if_the_monitor_breaks_again_at_once) {
  const auto before = events();
  second->healthy = false;
  second->broken_at_once = true;
  EXPECT_TRUE(both.watch(pages));
  EXPECT_EQ(both.changes(), 2U);
  EXPECT_TRUE(both.watch(pages)) << "restarted without a delay";
  EXPECT_EQ(second->restarted, 2);
  EXPECT_EQ(events(), before + 2) << "a failure each time";
}

TEST_F(monitor_sets, R53_second_failure_of_a_recovered_monitor_invalidates_all_memory) {
  first->healthy = first->restarts = false;
  EXPECT_FALSE(first->ensure_works());
  first->healthy = true;
  const auto before = events();
  EXPECT_TRUE(first->ensure_works());
  first->healthy = false;
  EXPECT_FALSE(first->ensure_works());
  EXPECT_EQ(events(), before + 1) << "a failure of its own";
  EXPECT_EQ(first->failures(), 2U);
}

}  // namespace
}  // namespace pinfold::testing::monitor_set_test
