// SPDX-License-Identifier: BSD-3-Clause
// `pinfold watch`, over processes that evict, unmap, end and are killed.
#include "support/fixtures/published_cache.hpp"

#include <pinfold/cache.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <poll.h>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <vector>

namespace pinfold::testing::cli_watch_test {

// With a name that symbols have.
extern "C" [[gnu::noinline]] void pinfold_test_ends_the_buffer(void* memory, std::size_t bytes) {
  ::munmap(memory, bytes);
  asm volatile("");  // no tail call: the frame stays
}

namespace {

using namespace std::chrono_literals;

struct cli_watch : with_pages {};

/// Does something 20 ms after 20 ms, until the parent hangs up.
template <class Step>
int repeat(line& talk, Step step) {
  talk.send(true);
  pollfd over{talk.number(), POLLIN, 0};
  for (int i = 0; ::poll(&over, 1, 20) == 0; ++i) step(i);
  return 0;
}

int evicting(line& talk) {
  local_fixture f({.name = "evicts", .max_count = 1, .shards = 1, .publish_statistics = true});
  return repeat(talk, [&](int i) {
    const auto begin = 0x100000 + 0x10000UL * static_cast<unsigned>(i % 2);
    f.touch(begin, begin + 0x3000);
  });
}

std::string watch_text(const child_process& child, const std::string& options) {
  const auto seen = run("watch --seconds 60s " + options + " " + std::to_string(child.pid()));
  EXPECT_EQ(seen.status, 0) << seen.complaints;
  return seen.out;
}

std::vector<json> watch(const child_process& child, const std::string& options) {
  std::istringstream lines(watch_text(child, "--json " + options));
  std::vector<json> all;
  for (std::string one; std::getline(lines, one);) {
    all.push_back(json::parse(one, nullptr, false));
    EXPECT_TRUE(all.back().is_object()) << one;
  }
  return all;
}

TEST_F(cli_watch, shows_what_is_evicted) {
  child_process child(evicting);
  ASSERT_TRUE(child.talk().receive<bool>());
  const auto seen = watch(child, "--limit 4");
  ASSERT_EQ(seen.size(), 4U);
  for (std::size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i].at("kind"), "evicted");
    EXPECT_EQ(seen[i].at("cache"), "evicts");
    EXPECT_EQ(seen[i].at("bytes"), 0x3000);
    EXPECT_EQ(seen[i].at("thread"), child.pid());
    EXPECT_TRUE(seen[i].at("begin") == "0x100000" || seen[i].at("begin") == "0x110000");
    EXPECT_EQ(seen[i].at("number"), static_cast<std::size_t>(seen[0].at("number")) + i);
  }
}

TEST_F(cli_watch, lines_are_for_people) {
  child_process child(evicting);
  ASSERT_TRUE(child.talk().receive<bool>());
  const auto text = watch_text(child, "--limit 1 --kind evicted");
  EXPECT_NE(text.find(" evicted "), std::string::npos) << text;
  EXPECT_NE(text.find("12 KiB"), std::string::npos) << text;
  EXPECT_NE(text.find(" old  evicts  thread "), std::string::npos) << text;
}

TEST_F(cli_watch, failures_have_their_reasons) {
  child_process child([](line& talk) {
    const auto device = std::make_shared<fake_device>();
    local_fixture f({.name = "refuses", .publish_statistics = true}, device);
    device->fail_opens([](const range&, access_flags) {
      return error{errc::driver_error, native_kind::posix, ENXIO, "the device is gone"};
    });
    return repeat(talk, [&](int) { static_cast<void>(f.acquire(0x900000, 0x901000)); });
  });
  ASSERT_TRUE(child.talk().receive<bool>());
  const auto text = watch_text(child, "--limit 3");
  EXPECT_EQ(text.find("code "), std::string::npos) << text;
  EXPECT_NE(text.find("driver_error: the device is gone (ENXIO 6: No such device or address) after "),
            std::string::npos)
      << text;
  EXPECT_TRUE(watch(child, "--limit 1").at(0).at("reason").get<std::string>().starts_with("driver_error: "));
}

// The page keeps the reasons of eight.
TEST_F(cli_watch, failures_that_are_read_late_have_their_reasons) {
  child_process child([](line& talk) {
    const auto device = std::make_shared<fake_device>();
    local_fixture f({.name = "refuses", .publish_statistics = true}, device);
    device->fail_opens([](const range&, access_flags) {
      return error{errc::driver_error, native_kind::posix, ENXIO, "the device is gone"};
    });
    for (std::uintptr_t i = 0; i < 20; ++i) static_cast<void>(f.acquire(0x900000 + i * 0x1000, 0x901000 + i * 0x1000));
    talk.send(true);
    static_cast<void>(talk.receive<bool>());
    return 0;
  });
  ASSERT_TRUE(child.talk().receive<bool>());
  const auto text = watch_text(child, "--limit 20 --oldest --kind open_failed");
  EXPECT_EQ(text.find("code "), std::string::npos) << text;
  child.talk().send(true);
}

TEST_F(cli_watch, acquires_that_fail_are_shown_with_their_reason) {
  child_process child([](line& talk) {
    local_fixture f({.name = "small", .max_bytes = 0x1000, .publish_statistics = true});
    return repeat(talk, [&](int) { static_cast<void>(f.acquire(0x900000, 0x902000)); });
  });
  ASSERT_TRUE(child.talk().receive<bool>());
  const auto text = watch_text(child, "--limit 1 --kind request_failed");
  EXPECT_NE(text.find(" request_failed     0x900000 8 KiB "), std::string::npos) << text;
  EXPECT_NE(text.find("  larger_than_budget: "), std::string::npos) << text;
}

TEST_F(cli_watch, kinds_that_are_not_asked_for_are_left_out) {
  child_process child(evicting);
  ASSERT_TRUE(child.talk().receive<bool>());
  const auto seen = run("watch --seconds 300ms --kind gone,replaced " + std::to_string(child.pid()));
  EXPECT_EQ(seen.status, 0);
  EXPECT_EQ(seen.out, "");
}

TEST_F(cli_watch, ends_with_the_process) {
  for (const auto life : {1s, 5s, 25s, 125s}) {  // a busy machine may start the command after a shorter life
    child_process child([life](line& talk) {
      local_fixture f({.name = "ends", .publish_statistics = true});
      talk.send(true);
      static_cast<void>(talk.receive<bool>());
      std::this_thread::sleep_for(life);
      return 0;
    });
    ASSERT_TRUE(child.talk().receive<bool>());
    child.talk().send(true);
    const auto start = std::chrono::steady_clock::now();
    const auto seen = run("watch --seconds 500s " + std::to_string(child.pid()));
    if (seen.status != 0 && life < 125s) continue;
    EXPECT_EQ(seen.status, 0) << seen.complaints;
    const auto how =
        " was killed, or crashed, or executed another program";  // or called _exit(2), as here: its page stays
    EXPECT_NE(seen.complaints.find("process " + std::to_string(child.pid()) + how), std::string::npos)
        << seen.complaints;
    EXPECT_LT(std::chrono::steady_clock::now() - start, 400s);
    return;
  }
}

TEST_F(cli_watch, shows_what_a_killed_process_did) {
  child_process child(evicting);
  ASSERT_TRUE(child.talk().receive<bool>());
  ASSERT_FALSE(watch(child, "--limit 1").empty());
  child.kill();
  const auto seen = watch(child, "--oldest");
  EXPECT_FALSE(seen.empty());
  for (const auto& one : seen) EXPECT_EQ(one.at("kind"), "evicted");
  const auto later = run("watch " + std::to_string(child.pid()));  // no event will come
  EXPECT_EQ(later.status, 1);
  EXPECT_NE(
      later.complaints.find("was killed, or crashed, or executed another program; --oldest shows its last events"),
      std::string::npos)
      << later.complaints;
}

// Real munmap(2) calls, seen by the hooks, named by their function.
TEST_F(cli_watch, names_the_function_that_unmaps) {
  child_process child([](line& talk) {
    cache_options options{.name = "hooked", .publish_statistics = true};
    pinfold::cache<fake_registrar> cache(fake_registrar(std::make_shared<fake_device>()), options);
    return repeat(talk, [&](int) {
      constexpr std::size_t bytes = 0x10000;
      void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      static_cast<void>(cache.acquire(memory, bytes));
      pinfold_test_ends_the_buffer(memory, bytes);
    });
  });
  ASSERT_TRUE(child.talk().receive<bool>());
  const auto seen = watch(child, "--stacks --kind gone --limit 30");
  ASSERT_FALSE(seen.empty());
  if (std::ranges::none_of(seen, [](const json& one) { return one.at("source") == "hooks"; }))
    GTEST_SKIP() << "the hooks do not see munmap here";
  const auto names_it = [](const json& one) {
    return one.contains("stack") && one.at("stack").dump().find("pinfold_test_ends_the_buffer+") != std::string::npos;
  };
  EXPECT_TRUE(std::ranges::any_of(seen, names_it)) << seen.back().dump();
}

TEST_F(cli_watch, wrong_usage_is_explained) {
  expect_each_refused(
      {{"watch", "process"}, {"watch 0", "0"}, {"watch --kind nothing 1", "nothing"}, {"watch --seconds x 1", "x"}});
  const auto none = run("watch " + std::to_string(::getpid()));
  EXPECT_EQ(none.status, 1);
  EXPECT_NE(none.complaints.find("PINFOLD_STATS=on"), std::string::npos) << none.complaints;
}

}  // namespace
}  // namespace pinfold::testing::cli_watch_test
