// SPDX-License-Identifier: BSD-3-Clause
// `pinfold dump`, over processes with one copy of the library and with two.
#include "debugging/table.hpp"
#include "support/fixtures/local_fixture.hpp"
#include "support/processes/child_process.hpp"
#include "support/processes/tool_run.hpp"

#include <algorithm>
#include <dlfcn.h>
#include <sstream>
#include <string>
#include <sys/prctl.h>
#include <vector>

namespace pinfold::testing::cli_dump_test {
namespace {

/// A child with a cache of three entries, one of them leased, and perhaps a plug-in that contains the library too.
int with_cache(line& talk, bool plug_in) {
  if (plug_in) {
    void* const library = ::dlopen(PINFOLD_STATIC_PLUG_IN, RTLD_NOW | RTLD_LOCAL);
    const auto start = reinterpret_cast<void* (*)(std::uint32_t)>(::dlsym(library, "plug_in_start"));
    talk.send(start != nullptr && start(static_cast<std::uint32_t>(monitor_choice::manual)) != nullptr);
  }
  local_fixture f({.name = "seen from outside"});
  f.touch(0x30000, 0x33000);
  f.touch(0x10000, 0x11000);
  const auto lease = f.acquire(0x20000, 0x22000);
  talk.send(true);
  static_cast<void>(talk.receive<bool>());
  return 0;
}

json dump_of(const child_process& child, const std::string& options = "") {
  const auto seen = run("dump --json " + options + " " + std::to_string(child.pid()));
  EXPECT_EQ(seen.status, 0) << seen.complaints;
  auto parsed = json::parse(seen.out, nullptr, false);
  EXPECT_TRUE(parsed.is_object()) << seen.out;
  return parsed;
}

std::vector<std::string> begins(const json& cache) {
  std::vector<std::string> all;
  for (const auto& one : cache.at("entries")) all.push_back(one.at("begin"));
  return all;
}

TEST(cli_dump, shows_the_entries_in_the_order_that_is_asked_for) {
  child_process child([](line& talk) { return with_cache(talk, false); });
  ASSERT_TRUE(child.talk().receive<bool>());
  const auto found = dump_of(child);
  ASSERT_EQ(found.at("caches").size(), 1U);
  const auto& cache = found.at("caches").at(0);
  EXPECT_EQ(cache.at("name"), "seen from outside");
  EXPECT_EQ(cache.at("bytes_now"), 0x6000);
  EXPECT_EQ(cache.at("counters").at("opens"), 3);
  EXPECT_EQ(begins(cache), (std::vector<std::string>{"0x10000", "0x20000", "0x30000"}));
  EXPECT_EQ(cache.at("entries").at(1).at("leases"), 1);
  EXPECT_EQ(begins(dump_of(child, "--sort bytes").at("caches").at(0)),
            (std::vector<std::string>{"0x30000", "0x20000", "0x10000"}));
  EXPECT_EQ(begins(dump_of(child, "--sort leases --limit 1").at("caches").at(0)), std::vector<std::string>{"0x20000"});
}

TEST(cli_dump, shows_only_the_entries_at_an_address) {
  child_process child([](line& talk) { return with_cache(talk, false); });
  ASSERT_TRUE(child.talk().receive<bool>());
  EXPECT_EQ(begins(dump_of(child, "--at 0x31000").at("caches").at(0)), std::vector<std::string>{"0x30000"});
  EXPECT_TRUE(dump_of(child, "--at 0x33000").at("caches").empty());
  const auto text = run("dump --at 0x33000 " + std::to_string(child.pid()));
  EXPECT_NE(text.out.find("\nno entry contains 0x33000\n"), std::string::npos) << text.out;
}

TEST(cli_dump, a_terminal_need_not_obey_a_name) {
  child_process child([](line& talk) {
    local_fixture f({.name = "\x1b[2J\xff"});
    f.touch(0x10000, 0x11000);
    *const_cast<char*>(debugging::pinfold_debug_v1.counters) = '\x1b';  // in "acquires"
    ::prctl(PR_SET_NAME, "\xc2\x9b");                                   // one letter, which some terminals obey, too
    return talk.send(true) && !talk.receive<bool>() ? 0 : 1;
  });
  ASSERT_TRUE(child.talk().receive<bool>());
  for (const char* form : {"dump ", "dump --json "}) {
    const auto seen = run(form + std::to_string(child.pid()));
    EXPECT_EQ(seen.status, 0) << seen.complaints;
    EXPECT_NE(seen.out.find("?[2J?"), std::string::npos) << seen.out;
    EXPECT_NE(seen.out.find("?cquires"), std::string::npos) << seen.out;
    EXPECT_TRUE(std::ranges::all_of(seen.out, [](char one) { return one == '\n' || (one >= ' ' && one <= '~'); }));
  }
}

TEST(cli_dump, prints_lines_of_80_columns) {
  child_process child([](line& talk) { return with_cache(talk, false); });
  ASSERT_TRUE(child.talk().receive<bool>());
  child.stop();
  const auto seen = run("dump --limit 2 " + std::to_string(child.pid()));
  EXPECT_EQ(seen.status, 0) << seen.complaints;
  EXPECT_NE(seen.out.find("read while it was stopped\n"), std::string::npos) << seen.out;
  EXPECT_NE(seen.out.find("\n  and 1 more\n"), std::string::npos) << seen.out;
  std::istringstream lines(seen.out);
  for (std::string one; std::getline(lines, one);) EXPECT_LE(one.size(), 80U) << one;
}

TEST(cli_dump, shows_two_copies_of_the_library) {
  child_process child([](line& talk) { return with_cache(talk, true); });
  const auto started = child.talk().receive<bool>();
  ASSERT_TRUE(started);
  ASSERT_TRUE(child.talk().receive<bool>());
  const auto found = dump_of(child);
  EXPECT_EQ(found.at("copies"), 2);
  if (!*started) GTEST_SKIP() << "the plug-in cannot have an io_uring here";
  ASSERT_EQ(found.at("caches").size(), 2U);
  EXPECT_TRUE(
      std::ranges::any_of(found.at("caches"), [](const json& one) { return one.at("registrar") == "pretend"; }));
  EXPECT_TRUE(
      std::ranges::any_of(found.at("caches"), [](const json& one) { return one.at("registrar") == "io_uring"; }));
}

TEST(cli_dump, says_what_it_cannot_read) {
  expect_each_refused({{"dump", "process"},
                       {"dump x", "x"},
                       {"dump 0", "0"},
                       {"dump --sort size 1", "size"},
                       {"dump --core core 1", "--core"}});
  EXPECT_NE(run("dump --core /no-such-file").complaints.find("cannot open"), std::string::npos);
  EXPECT_NE(run("dump --core '" + tool() + "'").complaints.find("no core file"), std::string::npos);
  const auto none = run("dump 4194304");
  EXPECT_EQ(none.status, 1);
  EXPECT_NE(none.complaints.find("there is no such process"), std::string::npos) << none.complaints;
  child_process other([](line&) { return ::execl("/bin/sleep", "sleep", "600", nullptr); });
  outcome seen;
  for (int i = 0; i < 1000 && seen.complaints.find("(sleep)") == std::string::npos; ++i)
    seen = run("dump " + std::to_string(other.pid()));
  EXPECT_EQ(seen.status, 1);
  EXPECT_NE(seen.complaints.find("contains no copy of this library"), std::string::npos) << seen.complaints;
}

}  // namespace
}  // namespace pinfold::testing::cli_dump_test
