// SPDX-License-Identifier: BSD-3-Clause
// The node's budget: an account that processes share.
#include "node_budget/membership.hpp"
#include "os/file.hpp"
#include "support/fixtures/local_fixture.hpp"
#include "support/fixtures/node_account.hpp"
#include "support/host/process_limits.hpp"
#include "support/processes/child_process.hpp"

#include <pinfold/node_budget.hpp>
#include <pinfold/settings.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <future>
#include <string>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace pinfold::testing::node_budget_test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t page = 4096;
constexpr std::size_t mebibyte = std::size_t{1} << 20U;

TEST(node_budget, takes_and_gives_back_all_or_nothing) {
  const node_account account;
  const auto budget = account.open(mebibyte);
  EXPECT_TRUE(budget->take(mebibyte - page));
  EXPECT_FALSE(budget->take(page + 1));
  EXPECT_EQ(budget->bytes_here(), mebibyte - page);
  EXPECT_TRUE(budget->take(page));
  EXPECT_FALSE(budget->take(1));
  EXPECT_EQ(budget->used_bytes(), mebibyte);
  budget->give(mebibyte);
  budget->trim();
  EXPECT_EQ(budget->used_bytes(), 0U);
  budget->give(1);
  EXPECT_EQ(budget->bytes_here(), 0U) << "no more than was taken comes back";
  EXPECT_FALSE(budget->take(SIZE_MAX));
}

TEST(node_budget, members_share_the_maximum) {
  const node_account account;
  const auto one = account.open(mebibyte);
  const auto other = account.open(0);
  EXPECT_EQ(other->max_bytes(), mebibyte);
  EXPECT_TRUE(one->take(mebibyte / 2));
  EXPECT_TRUE(other->take(mebibyte / 4));
  EXPECT_FALSE(other->take(mebibyte / 2));
  ASSERT_EQ(one->members().size(), 2U);
  EXPECT_EQ(one->members()[0].pid, ::getpid());
  EXPECT_GE(one->members()[0].bytes, mebibyte / 2);
  const auto seen = node_budget::inspect(account.name());
  EXPECT_EQ(seen->used_bytes, one->used_bytes());
  for (const auto& member : seen->members) EXPECT_FALSE(member.ended);
  for (const auto& member : one->members()) EXPECT_FALSE(member.ended);
}

TEST(node_budget, a_member_that_leaves_gives_everything_back) {
  const node_account account;
  const auto stays = account.open(mebibyte);
  {
    const auto leaves = account.open(0);
    EXPECT_TRUE(leaves->take(mebibyte));
    EXPECT_FALSE(stays->take(1));
  }
  EXPECT_TRUE(stays->take(mebibyte));
  EXPECT_EQ(stays->members().size(), 1U);
}

// A copy in a child would hold the locks that show that the member lives.
TEST(node_budget, a_child_forked_while_an_account_is_opened_and_left_has_no_file_of_it) {
  const node_account account;
  const auto stays = account.open(mebibyte);
  std::atomic<int> opened{0};
  std::jthread member([&](const std::stop_token& stop) {
    while (!stop.stop_requested())
      opened += node_budget::open(account.name(), {.shared = false, .pins = false}).has_value() ? 1 : 0;
  });
  while (opened.load() == 0) std::this_thread::yield();
  for (int i = 0; i < 60; ++i) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(account.open_files());
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0) << "round " << i;
  }
}

TEST(node_budget, members_agree_on_the_maximum) {
  const node_account account;
  EXPECT_EQ(node_budget::open(account.name()).error().code, errc::invalid_argument) << "there is no account yet";
  {
    const auto first = account.open(mebibyte);
    EXPECT_EQ(node_budget::open(account.name(), {.max_bytes = 2 * mebibyte}).error().code, errc::invalid_argument);
    EXPECT_TRUE(node_budget::open(account.name(), {.max_bytes = mebibyte}));
    EXPECT_EQ(first->members().size(), 1U);
  }
  const auto alone = account.open(2 * mebibyte);
  EXPECT_EQ(alone->max_bytes(), 2 * mebibyte) << "an account without members gets a new maximum";
  EXPECT_TRUE(alone->take(2 * mebibyte));
  EXPECT_TRUE(alone->set_max_bytes(mebibyte));
  EXPECT_FALSE(alone->take(1));
  EXPECT_EQ(alone->set_max_bytes(page - 1).error().code, errc::invalid_argument);
  EXPECT_EQ(alone->max_bytes(), mebibyte);
}

TEST(node_budget, a_process_is_a_member_once_unless_it_asks_otherwise) {
  const node_account account;
  const auto one = node_budget::open(account.name(), {.max_bytes = mebibyte});
  ASSERT_TRUE(one) << describe(one.error());
  EXPECT_EQ(*node_budget::open(account.name()), *one);
  EXPECT_EQ(*node_budget::open_text(account.name() + ":1M"), *one);
  EXPECT_EQ(node_budget::open_text(account.name() + ":2M").error().code, errc::invalid_argument);
  EXPECT_EQ((*one)->members().size(), 1U);
  ASSERT_TRUE(node_budget::remove(account.name()));
  const auto fresh = node_budget::open_text(account.name() + ":2M");
  ASSERT_TRUE(fresh);
  EXPECT_NE(*fresh, *one) << "another account of that name";
}

TEST(node_budget, is_a_setting) {
  const node_account account;
  const auto read = options_from_text("PINFOLD_NODE_BUDGET=" + account.name() + ":1M", "text");
  ASSERT_TRUE(read) << read.error().where;
  ASSERT_NE(read->node_budget, nullptr);
  EXPECT_EQ(read->node_budget->max_bytes(), mebibyte);
  EXPECT_NE(to_text(*read).find("\nPINFOLD_NODE_BUDGET=" + account.name() + ":1M\n"), std::string::npos);
  EXPECT_EQ(options_from_text("PINFOLD_NODE_BUDGET=none", "text", *read)->node_budget, nullptr);
  for (const char* bad : {"", ":1M", "a b", "a:", "a:0", "a:1X"})
    EXPECT_EQ(options_from_text(std::string("PINFOLD_NODE_BUDGET=") + bad, "text").error().cause.code,
              errc::invalid_argument)
        << bad;
}

TEST(node_budget, bad_names_are_refused) {
  for (const std::string& bad : {std::string(), std::string("a/b"), std::string("a b"), std::string(64, 'a')}) {
    EXPECT_EQ(node_budget::open(bad, {.max_bytes = mebibyte}).error().code, errc::invalid_argument) << bad;
    EXPECT_EQ(node_budget::inspect(bad).error().code, errc::invalid_argument) << bad;
    EXPECT_EQ(node_budget::remove(bad).error().code, errc::invalid_argument) << bad;
  }
}

TEST(node_budget, damaged_and_foreign_files_are_refused) {
  const node_account account;
  const auto refused = [&](const char* what) {
    EXPECT_EQ(node_budget::open(account.name(), {.max_bytes = mebibyte}).error().code, errc::invalid_handle) << what;
    EXPECT_EQ(node_budget::inspect(account.name()).error().code, errc::invalid_handle) << what;
  };
  static_cast<void>(account.open(mebibyte));
  const auto path = account.path();
  struct stat good{};
  ASSERT_EQ(::stat(path.c_str(), &good), 0);
  EXPECT_EQ(good.st_mode & 0777U, 0600U);
  ASSERT_EQ(::truncate(path.c_str(), good.st_size - 1), 0);
  refused("truncated");
  ASSERT_EQ(::truncate(path.c_str(), 0), 0);
  refused("empty");
  ASSERT_EQ(::truncate(path.c_str(), good.st_size), 0);
  refused("of zero bytes");
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  refused("readable by others");
  ASSERT_TRUE(node_budget::remove(account.name()));
  ASSERT_EQ(::symlink("/etc/passwd", path.c_str()), 0);
  refused("a link");
  ASSERT_TRUE(node_budget::remove(account.name()));
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  refused("a pipe");
}

TEST(node_budget, a_dead_process_is_no_member) {
  const node_account account;
  const auto budget = account.open(mebibyte);
  child_process child([&](line& parent) {
    const auto mine = account.open(0);
    parent.send(mine->take(mebibyte));
    parent.receive<int>();
    return 0;
  });
  ASSERT_TRUE(child.talk().receive<bool>().value());
  EXPECT_EQ(budget->members().size(), 2U);
  EXPECT_FALSE(budget->take(1));
  child.kill();
  const local_fixture f({.node_budget = budget});  // a request takes back
  EXPECT_TRUE(const_cast<local_fixture<>&>(f).acquire(0x10000, 0x10000 + mebibyte));
  EXPECT_EQ(budget->members().size(), 1U);
}

TEST(node_budget, a_child_takes_nothing_and_gives_nothing_back) {
  const node_account account;
  auto budget = account.open(mebibyte);
  ASSERT_TRUE(budget->take(mebibyte / 2));
  const auto used = budget->used_bytes();
  child_process child([&](line&) {
    if (budget->take(1)) return 1;
    budget->give(mebibyte / 2);
    budget->trim();
    if (budget->set_max_bytes(page)) return 2;
    budget.reset();
    const auto own = account.open(0);
    return own->take(page) && own->members().size() == 2 ? 0 : 3;
  });
  EXPECT_EQ(child.finish(), 0);
  EXPECT_EQ(budget->max_bytes(), mebibyte);
  EXPECT_GE(budget->used_bytes(), used);
  EXPECT_EQ(budget->bytes_here(), mebibyte / 2);
}

// Otherwise the child, which shares the parent's open files, would keep the parent's locks.
TEST(node_budget, the_child_of_a_dead_process_does_not_keep_its_share) {
  const node_account account;
  const auto budget = account.open(mebibyte);
  child_process parent([&](line& home) {
    const auto mine = account.open(0);
    home.send(mine->take(mebibyte));
    child_process grandchild([&](line&) {
      ::prctl(PR_SET_PDEATHSIG, 0);
      ::alarm(60);
      home.send(::getpid());
      for (;;) ::pause();
      return 0;
    });
    for (;;) ::pause();
    return 0;
  });
  ASSERT_TRUE(parent.talk().receive<bool>().value());
  const auto grandchild = parent.talk().receive<pid_t>();
  ASSERT_TRUE(grandchild);
  parent.kill();
  EXPECT_EQ(::kill(*grandchild, 0), 0) << "it lives";
  local_fixture f({.node_budget = budget});
  EXPECT_TRUE(f.acquire(0x10000, 0x10000 + mebibyte));
  ::kill(*grandchild, SIGKILL);
}

TEST(node_budget, two_caches_of_a_process_draw_from_one_account) {
  const node_account account;
  const auto budget = account.open(mebibyte);
  local_fixture one({.node_budget = budget});
  {
    local_fixture other({.node_budget = budget});
    const auto held = one.acquire(0x100000, 0x100000 + mebibyte / 2);
    ASSERT_TRUE(held);
    const auto beside = other.acquire(0x100000, 0x100000 + mebibyte / 2);
    ASSERT_TRUE(beside);
    EXPECT_EQ(budget->bytes_here(), mebibyte);
    EXPECT_EQ(one.acquire(0x900000, 0x901000).error().code, errc::over_budget);
    EXPECT_EQ(one.acquire(0x900000, 0x900000 + 2 * mebibyte).error().code, errc::larger_than_budget);
    EXPECT_EQ(budget->members()[0].refused, 1U);
  }
  EXPECT_EQ(budget->bytes_here(), mebibyte / 2) << "the cache that ended gave its room back";
  EXPECT_TRUE(one.acquire(0x900000, 0x901000));
  one.expect_sound();
}

TEST(node_budget, R14_evicts_idle_entries_before_it_refuses) {
  const node_account account;
  const auto budget = account.open(64 * page);
  local_fixture f({.node_budget = budget});
  for (std::uintptr_t i = 1; i <= 1000; ++i) f.touch(i * 0x10000, i * 0x10000 + page);
  EXPECT_LE(f.cache.statistics().bytes_now, 64 * page);
  EXPECT_GE(f.cache.statistics().bytes_now, 60 * page) << "and no more than it has to";
  EXPECT_EQ(f.cache.statistics().failed_acquires, 0U);
  f.expect_sound();
}

TEST(node_budget, bypasses_when_full) {
  const node_account account;
  const auto budget = account.open(page);
  local_fixture f({.full = when_full::bypass, .node_budget = budget});
  const auto held = f.acquire(0x10000, 0x11000);
  EXPECT_TRUE(f.acquire(0x20000, 0x21000));
  EXPECT_EQ(f.cache.statistics().bypasses, 1U);
  f.expect_sound();
}

TEST(node_budget, tells_the_sink_with_numbers_who_waits_and_is_refused) {
  const node_account account;
  const auto budget = account.open(16 * page);
  const auto other = account.open(0);
  ASSERT_TRUE(other->take(12 * page));
  std::vector<std::string> told;
  local_fixture f({.full = when_full::wait, .node_budget = budget, .full_timeout = 1s, .sink = [&](const event& what) {
                     if (what.kind == event_kind::waits_for_node_budget ||
                         what.kind == event_kind::refused_by_node_budget)
                       told.emplace_back(what.text);
                   }});
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(f.acquire(0x10000, 0x18000).error().code, errc::over_budget);
  EXPECT_GE(std::chrono::steady_clock::now() - start, 1s);
  ASSERT_EQ(told.size(), 2U);
  EXPECT_EQ(told[0], "waits for 32768 bytes of the node's budget " + account.name() +
                         ": 0 in use by this process, 49152 taken by all 2 members, maximum 65536, for this process "
                         "65536");
  EXPECT_EQ(told[1].substr(0, 7), "refused");
}

TEST(node_budget, R14_a_request_that_waits_is_served_when_another_member_gives_back) {
  const node_account account;
  const auto budget = account.open(mebibyte);
  const auto other = account.open(0);
  ASSERT_TRUE(other->take(mebibyte));
  local_fixture f({.full = when_full::wait, .node_budget = budget, .full_timeout = 120s});
  std::chrono::steady_clock::time_point served;
  std::thread waiting([&] {
    EXPECT_TRUE(f.acquire(0x10000, 0x20000));
    served = std::chrono::steady_clock::now();
  });
  while (budget->members()[0].waiting < 20ms) std::this_thread::yield();
  const auto given = std::chrono::steady_clock::now();
  other->give(mebibyte);
  waiting.join();
  EXPECT_LT(served - given, 60s) << std::chrono::duration<double, std::micro>(served - given).count() << " us";
  std::printf("served %.0f us after the room came back\n",
              std::chrono::duration<double, std::micro>(served - given).count());
  EXPECT_EQ(budget->members()[0].waiting, 0ms);
}

// It gives way in vain first, as all of its entries are leased.
TEST(node_budget, R14_a_request_above_the_even_share_that_waits_is_served_when_another_member_gives_back) {
  const node_account account;
  const auto rich = account.open(64 * page);
  const auto other = account.open(0);
  local_fixture f({.full = when_full::wait, .node_budget = rich, .full_timeout = 120s});
  const auto held = f.acquire(0x1000000, 0x1000000 + 40 * page);
  ASSERT_TRUE(held);
  rich->trim();
  ASSERT_TRUE(other->take(24 * page));
  other->inside().want(40 * page);  // for 100 ms
  const auto start = std::chrono::steady_clock::now();
  std::thread waiting([&] { EXPECT_TRUE(f.acquire(0x10000, 0x10000 + 10 * page)); });
  std::this_thread::sleep_for(50ms);
  other->give(24 * page);
  other->trim();
  waiting.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, 60s);
}

// A request that waits has ten turns of 100 ms, and then none for ten seconds. On a busy machine the threads that hold
// the room may get no processor in a turn, so each request has time for many.
constexpr auto many_turns = 240s;

// Has one lease of 16 pages after another, of a millisecond each.
void lease_often(local_fixture<>& f, std::uintptr_t from, const std::stop_token& stop, std::atomic<int>& served) {
  for (std::uintptr_t round = 1; !stop.stop_requested(); ++round) {
    const auto at = from + (1 + round % 64) * 0x100000;
    const auto lease = f.acquire(at, at + 16 * page);
    ASSERT_TRUE(lease);
    std::this_thread::sleep_for(1ms);
    ++served;
  }
}

// All room that comes back is taken by small requests before the large one looks again, unless it has its turn.
TEST(node_budget, R14_a_large_request_is_served_beside_members_with_small_ones) {
  constexpr int members = 5;
  const node_account account;
  const auto budget = account.open(64 * page);
  std::atomic<int> served{0};
  std::vector<std::jthread> busy;
  for (int i = 0; i < members; ++i)
    busy.emplace_back([&](const std::stop_token& stop) {
      local_fixture f({.full = when_full::wait, .node_budget = account.open(0), .full_timeout = many_turns});
      lease_often(f, 0, stop, served);
    });
  while (served < 10 * members) std::this_thread::yield();
  local_fixture f({.full = when_full::wait, .node_budget = budget, .full_timeout = many_turns});
  for (int round = 0; round < 3; ++round) {
    const auto before = served.load();
    EXPECT_TRUE(f.acquire(0x10000, 0x10000 + 56 * page)) << served - before << " small ones were served meanwhile";
    EXPECT_TRUE(f.cache.flush());
    while (served == before) std::this_thread::yield();
  }
}

// These need no eviction of their own, so that nothing but the other one's turn makes them wait.
TEST(node_budget, R14_a_large_request_is_served_beside_members_that_find_room_at_once) {
  constexpr int threads = 8;
  const node_account account;
  const auto budget = account.open(1000 * page);
  std::atomic<int> served{0};
  local_fixture small(
      {.retain = false, .full = when_full::wait, .node_budget = account.open(0), .full_timeout = many_turns});
  std::vector<std::jthread> busy;
  for (std::uintptr_t i = 1; i <= threads; ++i)
    busy.emplace_back([&, i](const std::stop_token& stop) { lease_often(small, i << 32U, stop, served); });
  while (served < 10 * threads) std::this_thread::yield();
  local_fixture f({.full = when_full::wait, .node_budget = budget, .full_timeout = many_turns});
  EXPECT_TRUE(f.acquire(0x10000, 0x10000 + 950 * page));
}

TEST(node_budget, R14_a_request_that_cannot_be_served_does_not_keep_others_of_its_member_from_their_turns) {
  const node_account account;
  const auto budget = account.open(64 * page);
  const auto held = account.open(0);
  ASSERT_TRUE(held->take(4 * page));
  local_fixture hopeless({.full = when_full::wait, .node_budget = budget, .full_timeout = many_turns});
  std::atomic<bool> answered{false};
  std::jthread waiting([&] {
    EXPECT_TRUE(hopeless.acquire(0x10000, 0x10000 + 64 * page));
    answered = true;
  });
  std::atomic<int> served{0};
  std::vector<std::jthread> busy;
  for (int i = 0; i < 5; ++i)
    busy.emplace_back([&](const std::stop_token& stop) {
      local_fixture f({.full = when_full::wait, .node_budget = account.open(0), .full_timeout = many_turns});
      lease_often(f, 0, stop, served);
    });
  std::this_thread::sleep_for(3s);  // its turns are over
  {
    local_fixture f({.full = when_full::wait, .node_budget = budget, .full_timeout = many_turns / 2});
    EXPECT_TRUE(f.acquire(0x10000, 0x10000 + 48 * page));
  }
  EXPECT_FALSE(answered) << "it waits all the time";
  busy.clear();
  held->give(4 * page);
  held->trim();
}

// The list of memberships is locked during a fork. A thread that waits for it for a millisecond claims it.
TEST(node_budget, children_forked_while_other_threads_wait_to_open_an_account_open_one) {
  constexpr int forks = 100;
  const node_account account;
  const auto stays = account.open(mebibyte);
  const std::vector<char> slow(16 * mebibyte, 1);  // to fork
  const auto open = [&] { return account.try_open(0).has_value(); };
  const auto repeat_open = [&](const std::stop_token& stop) {
    while (!stop.stop_requested()) EXPECT_TRUE(open());
  };
  const std::jthread one(repeat_open), another(repeat_open);
  const auto fork_often = [&] {
    for (int i = 0; i < forks; ++i) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::alarm(60);
        ::_exit(open() ? 0 : 1);
      }
      int status = -1;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      ASSERT_EQ(status, 0) << "round " << i << ": " << SIGALRM << " if it hangs";
    }
  };
  const std::jthread first(fork_often), second(fork_often), third(fork_often);
}

TEST(node_budget, what_a_refused_request_had_freed_is_not_kept) {
  const node_account account;
  const auto budget = account.open(64 * page);
  const auto other = account.open(0);
  ASSERT_TRUE(other->take(50 * page));
  local_fixture f({.node_budget = budget});
  for (std::uintptr_t i = 1; i <= 10; ++i) f.touch(i * 0x10000, i * 0x10000 + page);
  EXPECT_EQ(f.acquire(0x1000000, 0x1000000 + 20 * page).error().code, errc::over_budget);
  EXPECT_EQ(budget->bytes_here(), 0U);
  EXPECT_LE(budget->members()[0].bytes, 4 * page) << "at most two portions";
}

TEST(node_budget, a_program_gives_back_no_more_than_it_took) {
  const node_account account;
  const auto budget = account.open(64 * page);
  local_fixture f({.node_budget = budget});
  const auto held = f.acquire(0x100000, 0x100000 + 8 * page);
  ASSERT_TRUE(budget->take(page));
  budget->give(9 * page);
  EXPECT_EQ(budget->bytes_here(), 8 * page) << "the cache's room is the cache's";
}

TEST(node_budget, a_process_with_more_than_its_share_gives_way_at_its_next_miss_and_at_progress) {
  const node_account account;
  const auto rich = account.open(64 * page);
  const auto poor = account.open(0);
  local_fixture hoards({.node_budget = rich});
  for (std::uintptr_t i = 1; i <= 64; ++i) hoards.touch(i * 0x10000, i * 0x10000 + page);
  local_fixture f({.node_budget = poor});
  // The refusal makes the other member give way for 100 ms, in which this thread may lose its processor.
  const auto served_after = [&](std::uintptr_t begin, std::uintptr_t end, auto&& gives_way) {
    constexpr int most_tries = 20;
    for (int tries = 0; tries < most_tries; ++tries) {
      EXPECT_EQ(f.acquire(begin, end).error().code, errc::over_budget);
      gives_way();
      if (f.acquire(begin, end)) return true;
    }
    return false;
  };
  std::uintptr_t next = 0x9000000;
  const auto miss = [&] { hoards.touch(next, next + page), next += 0x10000; };
  EXPECT_TRUE(served_after(0x10000, 0x11000, miss)) << "a miss gave way";
  const auto progress = [&] { EXPECT_TRUE(hoards.cache.progress()); };
  EXPECT_TRUE(served_after(0x100000, 0x100000 + 30 * page, progress));
  EXPECT_LE(rich->bytes_here(), 32 * page) << "down to the even share";
  EXPECT_EQ(hoards.cache.statistics().failed_acquires, 0U);
}

TEST(node_budget, can_be_opened_while_others_make_and_remove_it) {
  const node_account account;
  const auto open_often = [&](line&) {
    for (int i = 0; i < 1000; ++i)
      if (!account.try_open(mebibyte)) return 1;
    return 0;
  };
  child_process first(open_often);
  child_process second(open_often);
  while (first.runs() || second.runs()) static_cast<void>(node_budget::remove(account.name()));
  EXPECT_EQ(first.reap(), 0);
  EXPECT_EQ(second.reap(), 0);
}

// As by a process that is stopped while it opens the account.
TEST(node_budget, account_that_another_process_is_opening_delays_opens_for_a_second_and_no_fork) {
  const node_account account;
  const auto member = account.open(mebibyte);
  const auto path = node_budget::file_of(account.name()).value();
  const os::file opener(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  struct flock what{};
  what.l_type = F_WRLCK;
  what.l_whence = SEEK_SET;
  what.l_len = 1;  // the account's first byte, by which openers take turns
  ASSERT_EQ(::fcntl(opener.number(), F_OFD_SETLK, &what), 0);
  std::vector<std::future<errc>> opens;
  const node_budget_options how{.max_bytes = mebibyte, .shared = false, .pins = false};
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 4; ++i)
    opens.push_back(
        std::async(std::launch::async, [&] { return node_budget::open(account.name(), how).error().code; }));
  auto least = std::chrono::nanoseconds::max();
  while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds{700}) {
    const auto before = std::chrono::steady_clock::now();
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    least = std::min<std::chrono::nanoseconds>(least, std::chrono::steady_clock::now() - before);
    ::waitpid(child, nullptr, 0);
  }
  EXPECT_LT(least, std::chrono::milliseconds{300}) << "a fork waited for all of the opens, a second for each";
  for (auto& one : opens) EXPECT_EQ(one.get(), errc::timed_out);
}

TEST(node_budget, limit_on_the_size_of_files_is_an_error) {
  const node_account account;
  const lowered_limit low(RLIMIT_FSIZE, page);
  const auto refused = node_budget::open(account.name(), {.max_bytes = mebibyte, .pins = false});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, errc::out_of_resources);
  EXPECT_EQ(refused.error().native, EFBIG);
}

TEST(node_budget, limits_say_which_one_binds) {
  const node_account account;
  const auto budget = account.open(mebibyte);
  const auto all = budget->limits();
  EXPECT_EQ(all.account_max, mebibyte);
  EXPECT_LE(all.process_max, mebibyte);
  EXPECT_LE(all.room, mebibyte);
  EXPECT_LE(all.process_max, std::min({all.account_max, all.memlock_max, all.cgroup_max}));
}

}  // namespace
}  // namespace pinfold::testing::node_budget_test
