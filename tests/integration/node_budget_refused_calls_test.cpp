// SPDX-License-Identifier: BSD-3-Clause
// Each call that the node's budget makes of libc fails once, in each plausible way: the result is an error with the
// system's code, or success; the total is right; nothing leaks; and the next try works.
#include "support/host/process_limits.hpp"
#include "support/host/refused_case.hpp"
#include "support/processes/release_stop.hpp"

#include <pinfold/node_budget.hpp>

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <new>
#include <optional>
#include <string>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace pinfold::testing::node_budget_refused_calls_test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t most = std::size_t{1} << 20U;

/// Those that the scenario makes.
constexpr const char* calls_of_budgets[] = {"posix_fallocate", "fcntl",  "mmap", "open",     "read",
                                            "linkat",          "fchmod", "stat", "readlink", "getrandom",
                                            "operator new"};

/// What one use of an account came to.
struct outcome {
  const char* at = "";  ///< the call that failed, empty where all went well
  error failure{};
  bool kept = true;       ///< the members had no more than the maximum, and the account says so
  bool recovered = true;  ///< what the dead member had came back, and everything could be taken
  [[nodiscard]] bool failed() const noexcept { return *at != 0; }
};

outcome fails(const char* at, const error& failure) { return {.at = at, .failure = failure}; }

/// A member that takes a quarter, and dies. Nothing is refused to it.
bool leave_a_dead_member(const std::string& name) {
  const pid_t child = ::fork();
  if (child == 0) {
    in_library = false;
    const auto mine = node_budget::open(name, {.member = "dies"});
    if (!mine || !(*mine)->take(most / 4)) ::_exit(1);
    ::raise(SIGKILL);
  }
  int status = 0;
  return child > 0 && ::waitpid(child, &status, 0) == child && WIFSIGNALED(status);
}

void close_all_but(int number) {
  const auto kept = static_cast<unsigned>(number);
  ::syscall(SYS_close_range, 3U, kept - 1, 0U);
  ::syscall(SYS_close_range, kept + 1, ~0U, 0U);
}

/// A member that has taken a quarter, and lives on without descriptors, and so without its lock.
class bare_member {
 public:
  explicit bare_member(const std::string& name)
      : child_([&](line& parent) {
          in_library = false;
          const auto mine = node_budget::open(name, {.member = "bare"});
          const bool has = mine && (*mine)->take(most / 4);
          if (has) (*mine)->trim();
          close_all_but(parent.number());
          parent.send(has);
          parent.receive<int>();  // until the end
          return 0;
        }) {}
  [[nodiscard]] bool has_its_part() { return child_.talk().receive<bool>().value_or(false); }

 private:
  child_process child_;
};

/// Takes all that is left, again and again for a second at most: a refused call may delay it.
bool takes_the_rest(node_budget& by) {
  constexpr auto rest = most - most / 4;
  for (int i = 0; i < 200; ++i) {
    if (by.take(rest)) {
      by.give(rest);
      by.trim();
      return true;
    }
    std::this_thread::sleep_for(5ms);
  }
  return false;
}

/// Two members take what is left, of which a dead one has a part.
outcome use(const std::string& name, node_budget& one, node_budget& other) {
  outcome seen;
  const bool first = one.take(most / 2);
  const bool second = other.take(most / 4);
  const auto state = node_budget::inspect(name);
  if (!state) {
    seen = fails("inspect", state.error());
  } else {
    seen.kept = state->used_bytes <= most && state->used_bytes >= one.bytes_here() + other.bytes_here() + most / 4;
  }
  seen.kept = seen.kept && !other.take(most - most / 4);
  if (first) one.give(most / 2);
  if (second) other.give(most / 4);
  one.trim();
  other.trim();
  return seen;
}

/// Two members of this process, one of which came after a third died, beside a living member without descriptors.
/// `second`: the same members, without refusals.
outcome scenario(const std::string& name, outcome& second) try {
  auto one = node_budget::open(name, {.max_bytes = most, .member = "one", .shared = false});
  if (!one) return fails("open", one.error());
  bare_member bare(name);
  if (!bare.has_its_part()) return fails("start a member", {});
  if (!leave_a_dead_member(name)) return fails("fork", {});
  auto other = node_budget::open(name, {.member = "other", .shared = false});
  if (!other) return fails("open again", other.error());
  outcome first = use(name, **one, **other);
  first.recovered = takes_the_rest(**other);
  refuse_none();
  second = use(name, **one, **other);
  second.recovered = takes_the_rest(**one) && takes_the_rest(**other) && (*one)->used_bytes() == most / 4;
  return first;
} catch (const std::bad_alloc&) {
  return fails("std::bad_alloc", {errc::out_of_resources, native_kind::posix, ENOMEM, ""});
}

/// Mappings of accounts.
int account_mappings() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string text; std::getline(maps, text);) count += text.find("/dev/shm/pinfold-") != std::string::npos;
  return count;
}

struct verdict {
  bool refused = false;
  outcome with;
  outcome second;  ///< by the same members
  outcome after;   ///< with an account made anew
  outcome after_second;
  footprint before, end;
  int mappings = 0;
};

verdict judge(const std::string& name, const refused_case& what, int nth) {
  verdict found;
  const library_calls counted;
  refuse_none();
  static_cast<void>(scenario(name, found.second));  // so that all is loaded, and made once
  static_cast<void>(node_budget::remove(name));
  found.before = footprint::here();
  found.second = {};
  refuse_one(what.call(), nth, what.native);
  found.with = scenario(name, found.second);
  found.refused = refusals.load() != 0;
  refuse_none();
  static_cast<void>(node_budget::remove(name));
  found.after = scenario(name, found.after_second);
  static_cast<void>(node_budget::remove(name));
  found.end = footprint::here();
  found.mappings = account_mappings();
  return found;
}

class node_budget_refused_calls : public ::testing::TestWithParam<refused_case> {
 protected:
  [[nodiscard]] std::optional<verdict> run(int nth) const {
    child_process child([&](line& parent) { return parent.send(judge(name_, GetParam(), nth)) ? 0 : 2; });
    limit_waits(child.talk(), 100s);
    return child.talk().receive<verdict>();
  }

  static void expect_clean(const verdict& seen) {
    if (seen.with.failed()) {
      EXPECT_EQ(seen.with.failure.native, GetParam().native) << seen.with.at << ": " << describe(seen.with.failure);
    }
    EXPECT_TRUE(seen.with.kept) << "the total is wrong";
    EXPECT_TRUE(seen.with.recovered) << "what a dead member had does not come back";
    expect_works(seen.second, "the same members, again");
    expect_works(seen.after, "an account made anew");
    expect_works(seen.after_second, "an account made anew, again");
    EXPECT_EQ(seen.end.descriptors, seen.before.descriptors);
    EXPECT_EQ(seen.mappings, 0);
  }

  static void expect_works(const outcome& seen, const char* which) {
    EXPECT_FALSE(seen.failed()) << which << ": " << seen.at << ": " << describe(seen.failure);
    EXPECT_TRUE(seen.kept) << which << ": the total is wrong";
    EXPECT_TRUE(seen.recovered) << which << ": not all room can be taken";
  }

 private:
  const std::string name_ = "test-refused-" + std::to_string(::getpid());
};

}  // namespace

TEST_P(node_budget_refused_calls, any_refused_call_is_reported_or_overcome) {
  if (sanitized) GTEST_SKIP() << "the sanitizer's runtime replaces these functions";
  int runs = 0;
  bool more = true;
  for (int nth = 1; more && !HasFailure(); ++nth, ++runs) {
    ASSERT_LT(nth, 2000) << "the scenario makes ever more calls";
    SCOPED_TRACE("call " + std::to_string(nth));
    const auto seen = run(nth);
    ASSERT_TRUE(seen) << "the process ended, or hung";
    more = seen->refused;
    expect_clean(*seen);
  }
  EXPECT_GT(runs, 1) << "nothing was refused";
  std::printf("%d runs\n", runs);
}

INSTANTIATE_TEST_SUITE_P(all, node_budget_refused_calls, ::testing::ValuesIn(refused_cases_of(calls_of_budgets)),
                         [](const auto& one) { return one.param.name(); });

}  // namespace pinfold::testing::node_budget_refused_calls_test
