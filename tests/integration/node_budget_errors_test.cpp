// SPDX-License-Identifier: BSD-3-Clause
// What the kernel refuses to an account for good reaches the caller with the kernel's code, and harms no other member.
#include "support/fixtures/node_account.hpp"
#include "support/host/refused_case.hpp"
#include "support/processes/release_stop.hpp"

#include <pinfold/node_budget.hpp>

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <unistd.h>

namespace pinfold::testing::node_budget_errors_test {
namespace {

using namespace std::chrono_literals;
using budget = std::shared_ptr<node_budget>;

constexpr std::size_t most = std::size_t{1} << 20U;

const refusable& call_of(const char* name) { return refused_cases_of({&name, 1}).at(0).call(); }

/// Opens an account, or removes its name, in a process whose calls of a function fail from the nth on. Returns the
/// error; its text is a literal, at the same address in both processes.
template <class Act>
std::optional<error> failure_of(const refusable& which, int nth, int native, Act act) {
  child_process child([&](line& parent) {
    const library_calls counted;
    refuse_from(which, nth, INT_MAX, native);
    const auto done = act();
    refuse_none();
    return parent.send(done ? error{.code = {}, .native = 0} : done.error()) ? 0 : 2;
  });
  limit_waits(child.talk(), 100s);
  return child.talk().receive<error>();
}

result<budget> open_apart(const std::string& name) {
  return node_budget::open(name, {.max_bytes = most, .shared = false, .pins = false});
}

/// Whether a process can become the only member and take everything.
bool all_is_there(const std::string& name) {
  child_process child([&](line&) {
    const auto mine = open_apart(name);
    return mine && (*mine)->members().size() == 1 && (*mine)->take(most) ? 0 : 1;
  });
  return child.finish() == 0;
}

}  // namespace

TEST(node_budget_errors, an_account_whose_locks_the_kernel_refuses_is_an_error_with_its_code) {
  if (sanitized) GTEST_SKIP() << "the sanitizer's runtime replaces these functions";
  const node_account account;
  for (const int native : {ENOLCK, EINVAL}) {
    bool fails = true;
    for (int nth = 1; fails; ++nth) {
      SCOPED_TRACE("from call " + std::to_string(nth) + " on: " + ::strerrorname_np(native));
      ASSERT_LT(nth, 100);
      const auto seen = failure_of(call_of("fcntl"), nth, native, [&] { return open_apart(account.name()); });
      ASSERT_TRUE(seen) << "the process ended, or hung";
      fails = seen->native != 0;
      EXPECT_TRUE(fails ? seen->native == native : nth > 5) << describe(*seen);
      EXPECT_TRUE(all_is_there(account.name()));
    }
  }
}

TEST(node_budget_errors, no_memory_to_watch_for_forks_is_an_error_with_its_code) {
  if (sanitized) GTEST_SKIP() << "the sanitizer's runtime replaces these functions";
  const node_account account;
  if (::getenv(refuses_fork_handlers) == nullptr) {  // the library registers its handlers when it is loaded
    child_process again([](line&) {
      ::setenv(refuses_fork_handlers, "", 1);
      ::execl("/proc/self/exe", "again", "--gtest_filter=node_budget_errors.no_memory_to_watch_for_forks*", nullptr);
      return 127;
    });
    EXPECT_EQ(again.reap(), 0);
    return;
  }
  const auto seen = open_apart(account.name());
  ASSERT_FALSE(seen);
  EXPECT_EQ(seen.error().code, errc::out_of_resources);
  EXPECT_EQ(seen.error().native, ENOMEM) << describe(seen.error());
}

TEST(node_budget_errors, a_name_that_cannot_be_removed_stays) {
  if (sanitized) GTEST_SKIP() << "the sanitizer's runtime replaces these functions";
  const node_account account;
  ASSERT_TRUE(all_is_there(account.name()));
  for (const int native : {EPERM, EACCES}) {
    const auto seen = failure_of(call_of("unlink"), 1, native, [&] { return node_budget::remove(account.name()); });
    ASSERT_TRUE(seen) << "the process ended, or hung";
    EXPECT_EQ(seen->code, errc::not_permitted);
    EXPECT_EQ(seen->native, native) << describe(*seen);
  }
  EXPECT_TRUE(node_budget::inspect(account.name()));
  EXPECT_TRUE(node_budget::remove(account.name()));
}

}  // namespace pinfold::testing::node_budget_errors_test
