// SPDX-License-Identifier: BSD-3-Clause
// An importer is killed, or stopped for longer than the exporter waits, at each of its steps of the release protocol
// (R66, docs/use/release-protocol.md). The exporter and another importer, which holds a lease, see nothing but that.
#include "support/host/sanitized.hpp"
#include "support/processes/retiring_peer.hpp"
#include "support/processes/stepping_importer.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

namespace pinfold::testing::release_importer_steps_test {
namespace {

using namespace std::chrono_literals;

constexpr auto timeout = 100ms;  // of the retirement
constexpr auto ample = 60s;      // for what other processes do, on a busy machine
constexpr std::uint32_t old_seed = 7;
constexpr std::uint32_t new_seed = 8;

/// What brings the importer to its step.
enum class way : std::uint8_t {
  opens,    ///< it opens the memory, before the retirement
  idles,    ///< it has an idle mapping when the request comes
  leases,   ///< it holds a lease when the request comes
  evicts,   ///< it closes an idle mapping by itself, before the retirement
  uses_it,  ///< it holds a lease, and is stopped from outside
};

/// Whether the exporter counts the importer that stands at the step.
enum class counted : std::uint8_t { no, yes, either };

struct place {
  const char* name;
  way by;
  step at;
  counted is;
  release_state said = release_state::silent;
};

constexpr place places[] = {
    {"connecting", way::opens, step::importer_connecting, counted::no},
    {"connected", way::opens, step::importer_connected, counted::no},
    {"asking", way::opens, step::importer_asking, counted::no},
    {"asked", way::opens, step::importer_asked, counted::either},  // the exporter may read it before it retires
    {"admitted", way::opens, step::importer_admitted, counted::yes},
    {"opening", way::opens, driver_opening, counted::yes},
    {"opened", way::opens, driver_opened, counted::yes},
    {"in_use", way::uses_it, step::none, counted::yes},
    {"requested_idle", way::idles, step::importer_requested, counted::yes},
    {"retiring_idle", way::idles, step::importer_retiring, counted::yes},
    {"closing", way::idles, driver_closing, counted::yes},
    {"closed", way::idles, step::importer_closed, counted::yes},
    {"letting_go", way::idles, step::importer_letting_go, counted::yes},
    {"let_go", way::idles, step::importer_let_go, counted::no},
    {"invalidated", way::idles, step::importer_invalidated, counted::yes},
    {"requested_in_use", way::leases, step::importer_requested, counted::yes},
    {"retiring_in_use", way::leases, step::importer_retiring, counted::yes},
    {"invalidated_in_use", way::leases, step::importer_invalidated, counted::yes},
    {"leased", way::leases, step::importer_leased, counted::yes, release_state::leased},
    {"evicting", way::evicts, driver_closing, counted::yes},
    {"evicted", way::evicts, step::importer_closed, counted::yes},
    {"letting_go_unasked", way::evicts, step::importer_letting_go, counted::yes},
    {"let_go_unasked", way::evicts, step::importer_let_go, counted::no},
};

struct trial {
  place what;
  deed how;
  friend std::ostream& operator<<(std::ostream& to, const trial& one) {
    return to << "the importer " << name_of(one.how) << " at " << one.what.name;
  }
};

std::vector<trial> all_trials() {
  std::vector<trial> made;
  for (const place& one : places)
    for (const deed how : {deed::kill, deed::stop_then_go_on, deed::stop_then_kill}) made.push_back({one, how});
  return made;
}

class release_importer_steps : public ::testing::TestWithParam<trial> {
 protected:
  void SetUp() override {
    for (stepping_importer* const one : {&victim, &other}) ASSERT_TRUE(one->look().done);
    // The other importer has its connections before anything is counted.
    const auto first = exporter.allocate(1);
    ASSERT_TRUE(other.read(first.handle, 1).right);
    ASSERT_TRUE(exporter.begin(ample).done);
    ASSERT_TRUE(exporter.wait(ample).all_let_go());
    exporter_before = exporter.look().open;
    other_before = other.look().open;
    const auto made = exporter.allocate(old_seed);
    ASSERT_TRUE(made.done);
    handle = made.handle;
    ASSERT_TRUE(other.lease(handle, old_seed).right);
  }

  [[nodiscard]] place what() const { return GetParam().what; }
  [[nodiscard]] bool before_retirement() const { return what().by == way::opens || what().by == way::evicts; }

  /// Brings the importer to its step, where it stands still, and begins the retirement.
  void stop_victim() {
    if (what().by == way::leases || what().by == way::uses_it) {
      ASSERT_TRUE(victim.lease(handle, old_seed).right);
    }
    if (what().by == way::idles || what().by == way::evicts) {
      ASSERT_TRUE(victim.read(handle, old_seed).right);
    }
    ASSERT_TRUE(victim.stop_at({what().at}).done);
    if (what().by == way::opens) {
      ASSERT_TRUE(victim.order_read(handle, old_seed));
    }
    if (what().by == way::evicts) {
      ASSERT_TRUE(victim.order_drop(handle));
    }
    if (what().by == way::uses_it) victim.process().stop();
    if (before_retirement()) {
      ASSERT_TRUE(stopped_itself(victim.process())) << "the step was not reached";
    }
    ASSERT_TRUE(exporter.begin(timeout).done);
    const bool by_request = what().by == way::idles || what().by == way::leases;
    if (by_request) {
      ASSERT_TRUE(stopped_itself(victim.process())) << "the step was not reached";
    }
  }

  /// The importer stands still, and the deadline has passed.
  void expect_in_limbo() {
    auto seen = exporter.wait(timeout + 50ms);
    for (const auto end = std::chrono::steady_clock::now() + ample;
         seen.done && !has_all_answers(seen) && std::chrono::steady_clock::now() < end;)
      seen = exporter.wait(1ms);
    ASSERT_TRUE(seen.done);
    EXPECT_EQ(seen.state, retire_state::limbo);
    EXPECT_EQ(seen.counts.limbo_bytes, retired_bytes);
    EXPECT_EQ(seen.died, 0U);
    const release_holder* const one = seen.holder(victim.process().pid());
    if (what().is == counted::no) {
      EXPECT_EQ(one, nullptr);
    }
    if (what().is == counted::yes) {
      ASSERT_NE(one, nullptr);
    }
    if (one != nullptr) {
      EXPECT_EQ(one->state, what().said);
      EXPECT_FALSE(one->lost);
    }
    expect_other_leases(seen);
  }

  /// Whether the exporter has read what both importers said before they stood still, or wait.
  bool has_all_answers(const retiring_report& seen) {
    const release_holder* const one = seen.holder(victim.process().pid());
    const bool of_victim = what().is == counted::either ||
                           (what().is == counted::no ? one == nullptr : one != nullptr && one->state == what().said);
    return of_victim && other_has_answered(seen);
  }
  bool other_has_answered(const retiring_report& seen) {
    const release_holder* const one = seen.holder(other.process().pid());
    return one != nullptr && one->state != release_state::silent;
  }

  void expect_other_leases(const retiring_report& seen) {
    const release_holder* const one = seen.holder(other.process().pid());
    ASSERT_NE(one, nullptr) << "the memory was not kept for the lease";
    EXPECT_EQ(one->state, release_state::leased);
    EXPECT_TRUE(other.check(old_seed).right);
    EXPECT_FALSE(other.find(handle).done);
  }

  /// Waits until the exporter counts the other importer alone, and has its answer.
  retiring_report wait_for_other_alone() {
    retiring_report seen;
    const auto deadline = std::chrono::steady_clock::now() + ample;
    do {
      seen = exporter.wait(1ms);
    } while ((seen.holders != 1 || !other_has_answered(seen)) && std::chrono::steady_clock::now() < deadline);
    return seen;
  }

  void kill_victim() {
    victim.process().kill();
    const auto seen = wait_for_other_alone();
    ASSERT_EQ(seen.holders, 1U) << "the exporter waits for a dead process";
    if (what().is != counted::either) {
      EXPECT_EQ(seen.died, what().is == counted::yes ? 1U : 0U);
    }
    EXPECT_EQ(seen.counts.importers_died, seen.died);
    expect_other_leases(seen);
  }

  void go_on() {
    victim.process().go_on();
    if (before_retirement()) {
      const auto said = victim.answer();
      ASSERT_TRUE(said) << "the importer hangs";
      EXPECT_TRUE(said->right) << "wrong bytes under a lease";
      const bool late = what().by == way::opens && what().is == counted::no;
      if (late || !said->done) {
        EXPECT_EQ(said->failure, errc::stale_handle) << describe(said->failure);
      }
    }
    if (what().by == way::leases || what().by == way::uses_it) {
      EXPECT_TRUE(victim.check(old_seed).right);
      EXPECT_FALSE(victim.find(handle).done && what().at == step::importer_leased);
      EXPECT_TRUE(victim.release().done);
    }
    const auto seen = wait_for_other_alone();
    ASSERT_EQ(seen.holders, 1U) << "the importer does not let go";
    EXPECT_EQ(seen.died, 0U);
    expect_other_leases(seen);
    const auto closed = victim.look();
    EXPECT_EQ(closed.mappings, 0U);
    EXPECT_EQ(closed.open.mappings, 0);
    EXPECT_EQ(victim.read(handle, old_seed).failure, errc::stale_handle);
  }

  /// The last importer lets go, and other memory gets the address.
  void expect_freed_and_used_again() {
    EXPECT_TRUE(other.release().done);
    const auto freed = exporter.wait(ample);
    EXPECT_TRUE(freed.all_let_go());
    EXPECT_EQ(freed.counts.limbo_bytes, 0U);
    EXPECT_EQ(freed.counts.limbo_buffers, 0U);
    EXPECT_EQ(freed.counts.freed_over_budget, 0U);
    const bool alive = GetParam().how == deed::stop_then_go_on;
    const auto next = exporter.allocate(new_seed, handle.base);
    if (sanitized && !next.done) return;  // a runtime may have taken the address
    ASSERT_TRUE(next.done) << "the address is not free";
    EXPECT_EQ(other.read(handle, old_seed).failure, errc::stale_handle);
    EXPECT_TRUE(other.read(next.handle, new_seed).done);
    if (alive) {
      EXPECT_TRUE(victim.read(next.handle, new_seed).done);
    }
    EXPECT_TRUE(exporter.begin(ample).done);
    const auto last = exporter.wait(ample);
    EXPECT_TRUE(last.all_let_go());
    EXPECT_EQ(last.let_go, alive ? 2U : 1U);
  }

  void expect_nothing_left() {
    if (GetParam().how == deed::stop_then_go_on) {
      EXPECT_EQ(victim.process().finish(), 0);
    }
    footprint seen;
    for (int i = 0; i < 2000 && (seen = exporter.look().open) != exporter_before; ++i)
      std::this_thread::sleep_for(10ms);
    EXPECT_EQ(seen.descriptors, exporter_before.descriptors);
    EXPECT_EQ(seen.mappings, exporter_before.mappings);
    EXPECT_LE(seen.threads, exporter_before.threads);  // a joined one may have been in /proc still
    const auto of_other = other.look();
    EXPECT_EQ(of_other.open.descriptors, other_before.descriptors);
    EXPECT_EQ(of_other.open.mappings, other_before.mappings);
    EXPECT_LE(of_other.open.threads, other_before.threads);
    EXPECT_EQ(of_other.mappings, 0U);
  }

  retiring_peer exporter;
  stepping_importer other;
  stepping_importer victim;  // last: the others would keep its end of the line open
  footprint exporter_before;
  footprint other_before;
  memfd_handle handle;
};

}  // namespace

TEST_P(release_importer_steps, R66_ends_in_bounded_time_and_leaves_nothing_behind) {
  ASSERT_NO_FATAL_FAILURE(stop_victim());
  if (GetParam().how != deed::kill) {
    ASSERT_NO_FATAL_FAILURE(expect_in_limbo());
  }
  if (GetParam().how == deed::stop_then_go_on) {
    ASSERT_NO_FATAL_FAILURE(go_on());
  } else {
    ASSERT_NO_FATAL_FAILURE(kill_victim());
  }
  ASSERT_NO_FATAL_FAILURE(expect_freed_and_used_again());
  expect_nothing_left();
}

INSTANTIATE_TEST_SUITE_P(all, release_importer_steps, ::testing::ValuesIn(all_trials()), [](const auto& one) {
  return std::string(one.param.what.name) + "_" + name_of(one.param.how);
});

}  // namespace pinfold::testing::release_importer_steps_test
