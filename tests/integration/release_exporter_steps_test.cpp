// SPDX-License-Identifier: BSD-3-Clause
// An exporter is killed, or stopped for longer than it waits, at each of its steps of the release protocol (R66,
// docs/use/release-protocol.md). Its two importers keep what they lease, lose the rest, and work with the next
// exporter.
#include "support/host/sanitized.hpp"
#include "support/processes/retiring_peer.hpp"
#include "support/processes/stepping_importer.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

namespace pinfold::testing::release_exporter_steps_test {
namespace {

using namespace std::chrono_literals;

constexpr auto timeout = 100ms;  // of the retirement
constexpr auto ample = 60s;      // for what other processes do, on a busy machine
constexpr std::uint32_t old_seed = 7;
constexpr std::uint32_t new_seed = 8;

/// What brings the exporter to its step.
enum class way : std::uint8_t {
  is_asked,      ///< an importer opens the memory, the other holds a lease; no retirement
  retires,       ///< it retires memory that one importer has idle, and the other leases
  retires_idle,  ///< it retires memory that both importers have idle
  bereaved,      ///< an importer of memory that the other leases is killed
  ends,          ///< its object is destroyed while memory that one importer leases is retired
  waits,         ///< the deadline passes while one importer leases the memory; the exporter is stopped from outside
};

struct place {
  const char* name;
  way by;
  stop_order at;
};

constexpr place places[] = {
    {"accepted", way::is_asked, {step::exporter_accepted}},
    {"opening", way::is_asked, {step::exporter_opening}},
    {"admitting", way::is_asked, {step::exporter_admitting}},
    {"admitted", way::is_asked, {step::exporter_admitted}},
    {"retiring", way::retires, {step::exporter_retiring}},
    {"requesting_the_first", way::retires, {step::exporter_requesting, 1}},
    {"requested_the_first", way::retires, {step::exporter_requested, 1}},
    {"requesting_the_second", way::retires, {step::exporter_requesting, 2}},
    {"requested_the_second", way::retires, {step::exporter_requested, 2}},
    {"answered_by_one", way::retires, {step::exporter_answered, 1}},
    {"counted_of_one", way::retires, {step::exporter_counted, 1}},
    {"answered_by_both", way::retires, {step::exporter_answered, 2}},
    {"counted_of_both", way::retires, {step::exporter_counted, 2}},
    {"limbo", way::waits, {}},
    {"all_answered", way::retires_idle, {step::exporter_counted, 2}},
    {"freeing", way::retires_idle, {step::exporter_freeing}},
    {"freed", way::retires_idle, {step::exporter_freed}},
    {"bereaved", way::bereaved, {step::exporter_bereaved}},
    {"ending", way::ends, {step::exporter_ending}},
    {"ended", way::ends, {step::exporter_ended}},
};

struct trial {
  place what;
  deed how;
  friend std::ostream& operator<<(std::ostream& to, const trial& one) {
    return to << "the exporter " << name_of(one.how) << " at " << one.what.name;
  }
};

std::vector<trial> all_trials() {
  std::vector<trial> made;
  for (const place& one : places)
    for (const deed how : {deed::kill, deed::stop_then_go_on, deed::stop_then_kill}) made.push_back({one, how});
  return made;
}

/// Waits for at most a minute.
template <class Condition>
bool soon(Condition holds) {
  const auto deadline = std::chrono::steady_clock::now() + ample;
  while (!holds()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(5ms);
  }
  return true;
}

class release_exporter_steps : public ::testing::TestWithParam<trial> {
 protected:
  void SetUp() override {
    for (stepping_importer* const one : {&user, second.get()}) ASSERT_TRUE(one->look().done);
    const auto made = exporter->allocate(old_seed);
    ASSERT_TRUE(made.done);
    handle = made.handle;
  }

  [[nodiscard]] way by() const { return GetParam().what.by; }
  [[nodiscard]] bool user_leases() const { return by() != way::retires_idle; }
  [[nodiscard]] bool goes_on() const { return GetParam().how == deed::stop_then_go_on; }

  /// Brings the exporter to its step, where it stands still.
  void stop_exporter() {
    ASSERT_TRUE(user_leases() ? user.lease(handle, old_seed).right : user.read(handle, old_seed).right);
    if (by() == way::bereaved) {
      ASSERT_TRUE(second->lease(handle, old_seed).right);
    } else if (by() != way::is_asked && by() != way::ends) {
      ASSERT_TRUE(second->read(handle, old_seed).right);
    }
    if (by() == way::waits || by() == way::ends || by() == way::bereaved) {
      ASSERT_TRUE(exporter->begin(by() == way::bereaved ? ample : timeout).done);
      ASSERT_TRUE(exporter->wait(timeout + 50ms).done);
    }
    ASSERT_TRUE(exporter->stop_at(GetParam().what.at).done);
    set_off();
    if (by() != way::waits) {
      ASSERT_TRUE(stopped_itself(exporter->process())) << "the step was not reached";
    }
  }

  void set_off() {
    switch (by()) {
      case way::is_asked: ASSERT_TRUE(second->order_read(handle, old_seed)); return;
      case way::retires:
      case way::retires_idle: ASSERT_TRUE(exporter->order_begin(timeout)); return;
      case way::bereaved: second->process().kill(); return;
      case way::ends: ASSERT_TRUE(exporter->order_end()); return;
      case way::waits: exporter->process().stop(); return;
    }
  }

  void expect_lease_holds() {
    if (user_leases()) {
      EXPECT_TRUE(user.check(old_seed).right) << "wrong bytes under a lease";
    }
  }

  /// The exporter does not exist any more: the importers lose its memory, but for what is leased.
  void kill_exporter() {
    exporter->process().kill();
    if (by() == way::is_asked) {
      const auto said = second->answer();
      ASSERT_TRUE(said) << "the importer waits for a dead process";
      EXPECT_TRUE(said->right);
      if (!said->done) {
        EXPECT_EQ(said->failure, errc::peer_gone) << describe(said->failure);
      }
    }
    expect_lease_holds();
    EXPECT_TRUE(soon([&] { return !user.find(handle).done; })) << "the entry outlives the exporter";
    expect_lease_holds();
    expect_user_closes();
    EXPECT_EQ(user.read(handle, old_seed).failure, errc::peer_gone);
    if (by() == way::bereaved) return;
    EXPECT_TRUE(soon([&] { return second->look().mappings == 0; }));
    EXPECT_EQ(second->look().open.mappings, 0);
    EXPECT_EQ(second->read(handle, old_seed).failure, errc::peer_gone);
  }

  void expect_user_closes() {
    if (user_leases()) {
      EXPECT_TRUE(user.release().done);
    }
    EXPECT_TRUE(soon([&] { return user.look().mappings == 0; })) << "the mapping outlives the lease";
    EXPECT_EQ(user.look().open.mappings, 0);
  }

  /// The exporter goes on, and ends what it began.
  void go_on() {
    exporter->process().go_on();
    if (by() == way::is_asked) {
      const auto said = second->answer();
      ASSERT_TRUE(said) << "the importer hangs";
      EXPECT_TRUE(said->done) << describe(said->failure);
      EXPECT_TRUE(said->right);
      ASSERT_TRUE(exporter->begin(timeout).done);
    } else if (by() != way::waits && by() != way::bereaved) {
      const auto said = exporter->answer();
      ASSERT_TRUE(said) << "the exporter hangs";
      EXPECT_TRUE(said->done);
      if (by() == way::ends) return expect_abandoned(*said);
    }
    expect_lease_holds();
    const auto seen = wait_for_user_alone();
    EXPECT_EQ(seen.all_let_go(), !user_leases());
    EXPECT_EQ(seen.holders, user_leases() ? 1U : 0U);
    if (by() == way::bereaved) {
      EXPECT_EQ(seen.died, 1U);
      EXPECT_EQ(seen.counts.importers_died, 1U);
    }
    expect_lease_holds();
    expect_user_closes();
    const auto last = exporter->wait(ample);
    EXPECT_TRUE(last.all_let_go());
    EXPECT_EQ(last.let_go, by() == way::bereaved ? 1U : 2U);
    EXPECT_EQ(last.counts.limbo_bytes, 0U);
    EXPECT_EQ(last.open.mappings, 0);
    EXPECT_EQ(user.read(handle, old_seed).failure, errc::stale_handle);
    expect_used_again(*exporter);
  }

  /// Waits until the exporter counts nothing but the lease of the user, if that has one.
  retiring_report wait_for_user_alone() {
    retiring_report seen;
    const auto deadline = std::chrono::steady_clock::now() + ample;
    do {
      seen = exporter->wait(by() == way::bereaved ? 50ms : timeout);
    } while ((user_leases() ? seen.holders != 1 : !seen.all_let_go()) && std::chrono::steady_clock::now() < deadline);
    return seen;
  }

  void expect_abandoned(const retiring_report& said) {
    EXPECT_EQ(said.state, retire_state::abandoned);
    EXPECT_EQ(said.holders, 1U);
    expect_lease_holds();
    expect_user_closes();
    EXPECT_EQ(user.read(handle, old_seed).failure, errc::unsupported);
    exporter->process().kill();
  }

  /// Other memory of that exporter gets the address.
  void expect_used_again(retiring_peer& by_one) {
    const auto next = by_one.allocate(new_seed, handle.base);
    if (sanitized && !next.done) return;  // a runtime may have taken the address
    ASSERT_TRUE(next.done) << "the address is not free";
    EXPECT_TRUE(user.read(next.handle, new_seed).done);
    EXPECT_TRUE(user.read(next.handle, new_seed).right);
    const bool both = by() != way::bereaved;
    if (both) {
      EXPECT_TRUE(second->read(next.handle, new_seed).right);
    }
    ASSERT_TRUE(by_one.begin(ample).done);
    const auto last = by_one.wait(ample);
    EXPECT_TRUE(last.all_let_go());
    EXPECT_EQ(last.let_go, both ? 2U : 1U);
    EXPECT_FALSE(user.find(next.handle).done);
  }

  std::unique_ptr<retiring_peer> exporter = std::make_unique<retiring_peer>();
  stepping_importer user;
  std::unique_ptr<stepping_importer> second = std::make_unique<stepping_importer>();
  memfd_handle handle;
};

}  // namespace

TEST_P(release_exporter_steps, R66_importers_lose_what_they_do_not_lease_and_go_on) {
  const auto before = user.look().open;
  ASSERT_NO_FATAL_FAILURE(stop_exporter());
  if (GetParam().how != deed::kill) {
    std::this_thread::sleep_for(timeout + 50ms);
  }
  expect_lease_holds();
  if (goes_on()) {
    ASSERT_NO_FATAL_FAILURE(go_on());
  } else {
    ASSERT_NO_FATAL_FAILURE(kill_exporter());
  }
  footprint after_one;
  for (const bool first : {true, false}) {  // the next two exporters leave no more behind than one
    exporter.reset();
    exporter = std::make_unique<retiring_peer>();
    ASSERT_NO_FATAL_FAILURE(expect_used_again(*exporter));
    auto now = user.look().open;
    if (first) {
      after_one = now;
    } else {
      // The importer notices the end of the exporter before on a thread of its own.
      const auto deadline = std::chrono::steady_clock::now() + ample;
      while (now.descriptors > after_one.descriptors && std::chrono::steady_clock::now() < deadline) {
        std::this_thread::sleep_for(5ms);
        now = user.look().open;
      }
      EXPECT_LE(now.descriptors, after_one.descriptors);
    }
    EXPECT_EQ(now.mappings, before.mappings);
    EXPECT_EQ(now.threads, before.threads + 1) << "of the importer, for the ends of exporters";
  }
}

INSTANTIATE_TEST_SUITE_P(all, release_exporter_steps, ::testing::ValuesIn(all_trials()), [](const auto& one) {
  return std::string(one.param.what.name) + "_" + name_of(one.param.how);
});

}  // namespace pinfold::testing::release_exporter_steps_test
