// SPDX-License-Identifier: BSD-3-Clause
// `pinfold top --once` and `--json`, over pages of real processes and over damaged ones.
#include "support/fixtures/forged_page.hpp"
#include "support/fixtures/published_cache.hpp"
#include "support/processes/background_run.hpp"

#include <pinfold/observation/counters.hpp>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <poll.h>
#include <random>
#include <sstream>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace pinfold::testing::cli_top_test {
namespace {

using namespace std::chrono_literals;

class cli_top : public with_pages {};

std::string id(const child_process& child) { return std::to_string(child.pid()); }

void expect_counters(const json& shown, const statistics& counters) {
  const auto values = observation::values_of(counters);
  for (std::size_t i = 0; i < observation::counters.size(); ++i) {
    const auto& one = observation::counters[i];
    const std::string name = one.field == nullptr ? "waited_ns" : one.name;
    EXPECT_EQ(shown.at(name), values[i]) << name;
  }
}

/// Hits, misses of three reasons, evictions, a refused open, and a lease that is out.
int with_varied_requests(line& talk) {
  const auto device = std::make_shared<fake_device>();
  device->call_takes = 1ms;
  local_fixture f({.name = "varied", .max_bytes = 1U << 20U, .max_count = 4, .publish_statistics = true}, device);
  for (std::uintptr_t i = 1; i <= 6; ++i) f.touch(i * 0x10000, i * 0x10000 + 0x1000);
  for (int i = 0; i < 50; ++i) f.touch(0x60000, 0x61000);
  f.invalidate(0x60000, 0x61000);
  f.touch(0x60000, 0x61000);
  device->fail_opens([](const range&, access_flags) {
    return std::optional(error{errc::driver_error, native_kind::posix, ENXIO, "the device is gone"});
  });
  EXPECT_FALSE(f.acquire(0x900000, 0x901000));
  device->fail_opens({});
  const auto lease = f.acquire(0x60000, 0x60800);
  talk.send(f.cache.statistics());
  static_cast<void>(talk.receive<bool>());
  return 0;
}

TEST_F(cli_top, json_has_the_counters_of_the_cache) {
  child_process child(with_varied_requests);
  const auto counters = child.talk().receive<statistics>();
  ASSERT_TRUE(counters);
  const auto seen = top_until(id(child), [&](const json& all) {
    const auto& caches = all.at("processes").at(0).at("caches");
    return caches.size() == 1 && caches[0].at("counters").at("leases_now") == 1 &&
           caches[0].at("counters").at("acquires") == counters->acquires &&
           all.at("processes").at(0).at("state") == "running";  // not while its thread that publishes is late
  });
  const auto& process = seen.at("processes").at(0);
  EXPECT_EQ(process.at("pid"), child.pid());
  EXPECT_EQ(process.at("state"), "running");
  EXPECT_EQ(process.at("bytes"), counters->bytes_now);
  EXPECT_EQ(process.at("budget"), 1U << 20U);
  const auto& cache = process.at("caches").at(0);
  EXPECT_EQ(cache.at("name"), "varied");
  EXPECT_EQ(cache.at("registrar"), "pretend");
  expect_counters(cache.at("counters"), *counters);
  EXPECT_GT(counters->misses_invalidated, 0U);
  EXPECT_EQ(cache.at("stale_prevented"), counters->misses_invalidated);
  EXPECT_EQ(cache.at("failures"), 1);
  EXPECT_DOUBLE_EQ(cache.at("hit_rate"),
                   static_cast<double>(counters->hits) / static_cast<double>(counters->hits + counters->misses));
  EXPECT_GE(cache.at("open_p50_ns"), 1000000 / 2) << "each open takes 1 ms: its bucket begins at half of that";
  EXPECT_GE(cache.at("open_p99_ns"), cache.at("open_p50_ns"));
  EXPECT_GE(cache.at("slowest_opens").at(0).at("duration_ns"), 1000000);
  const auto& error = cache.at("last_errors").at(0);
  EXPECT_EQ(error.at("call"), "open");
  EXPECT_EQ(error.at("native"), ENXIO);
  EXPECT_EQ(error.at("begin"), "0x900000");
  EXPECT_NE(error.at("text").get<std::string>().find("the device is gone"), std::string::npos);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream lines(text);
  for (std::string one; std::getline(lines, one);) all.push_back(one);
  return all;
}

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

/// Prints the table until it begins with that: a process whose thread that publishes is late is said to be stopped.
outcome table_with(const std::string& beginning) {
  outcome seen = run("top --once");
  for (int tries = 0; tries < 1000 && !seen.out.starts_with(beginning); ++tries) {
    std::this_thread::sleep_for(30ms);
    seen = run("top --once");
  }
  return seen;
}

void expect_narrow(const std::string& text) {
  for (const auto& one : lines_of(text)) EXPECT_LE(one.size(), 80U) << one;
}

TEST_F(cli_top, table_has_the_counters_of_the_cache) {
  child_process child(with_varied_requests);
  const auto counters = child.talk().receive<statistics>();
  ASSERT_TRUE(counters);
  static_cast<void>(top_until(id(child), [&](const json& all) {
    return all.at("processes").at(0).at("caches").at(0).at("counters").at("acquires") == counters->acquires;
  }));
  const auto seen = table_with("1 process, 1 cache; ");
  EXPECT_EQ(seen.status, 0) << seen.complaints;
  expect_narrow(seen.out);
  const auto lines = lines_of(seen.out);
  ASSERT_EQ(lines.size(), 7U) << seen.out;
  EXPECT_TRUE(lines[0].starts_with("1 process, 1 cache; ")) << lines[0];
  EXPECT_EQ(words_of(lines[4]).at(0), id(child));
  EXPECT_EQ(words_of(lines[4]).at(2), "running");
  const auto first = words_of(lines[5]);
  ASSERT_EQ(first.size(), 9U) << lines[5];
  EXPECT_EQ(first[0], "varied");
  EXPECT_EQ(first[6], "1M");
  EXPECT_EQ(first[7], std::to_string(counters->entries_now));
  EXPECT_EQ(first[8], "4");
  const auto second = words_of(lines[6]);
  ASSERT_EQ(second.size(), 11U) << lines[6];
  EXPECT_EQ(second[0], std::to_string(counters->misses_cold));
  EXPECT_EQ(second[1], std::to_string(counters->misses_invalidated));
  EXPECT_EQ(second[4], std::to_string(counters->misses_evicted));
  EXPECT_EQ(second[10], "1") << "failed";
  const auto wide = lines_of(run("top --once", "COLUMNS=160").out);
  ASSERT_EQ(wide.size(), 5U);
  EXPECT_EQ(words_of(wide[4]).size(), 20U) << wide[4];
}

TEST_F(cli_top, killed_and_stopped_processes_are_shown_as_such) {
  std::vector<std::unique_ptr<child_process>> children;
  for (const char* name : {"goes on", "is stopped", "is killed"}) {
    children.push_back(
        std::make_unique<child_process>([&](line& talk) { return with_published_cache(talk, name, 1); }));
    ASSERT_TRUE(children.back()->talk().receive<bool>());
  }
  children[1]->stop();
  children[2]->kill();
  ASSERT_EQ(children[2]->reap(), -SIGKILL);
  const auto seen = top_until("--sort cache", [](const json& all) {
    const auto is_stopped = [](const json& one) { return one.at("state") == "stopped"; };
    return std::ranges::count_if(all.at("processes"), is_stopped) == 1 && is_stopped(all.at("processes").back());
  });
  ASSERT_EQ(seen.at("processes").size(), 3U);
  for (const auto& [at, state] : {std::pair(0, "running"), {1, "ended"}, {2, "stopped"}})
    EXPECT_EQ(seen.at("processes").at(static_cast<std::size_t>(at)).at("state"), state);
  const std::string beginning = "3 processes (1 stopped, 1 ended), 3 caches";
  const auto text = table_with(beginning).out;
  EXPECT_TRUE(text.starts_with(beginning)) << text;
  children[1]->go_on();
}

std::vector<std::string> names(const json& all) {
  std::vector<std::string> found;
  for (const auto& process : all.at("processes"))
    for (const auto& cache : process.at("caches")) found.push_back(cache.at("name"));
  return found;
}

TEST_F(cli_top, sorts_and_filters) {
  using strings = std::vector<std::string>;
  child_process small([](line& talk) { return with_published_cache(talk, "zebra", 1); });
  child_process large([](line& talk) { return with_published_cache(talk, "Yak", 9); });
  ASSERT_TRUE(small.talk().receive<bool>() && large.talk().receive<bool>());
  static_cast<void>(top_until("", [](const json& all) {
    std::size_t entries = 0;
    for (const auto& one : all.at("processes")) entries += one.at("bytes").get<std::size_t>() / 0x1000;
    return entries == 10;
  }));
  EXPECT_EQ(names(top("--sort bytes")), (strings{"Yak", "zebra"}));
  EXPECT_EQ(names(top("--sort cache")), (strings{"Yak", "zebra"}));
  const bool first = small.pid() < large.pid();
  EXPECT_EQ(names(top("--sort pid")), first ? (strings{"zebra", "Yak"}) : (strings{"Yak", "zebra"}));
  EXPECT_EQ(names(top("--filter yak")), strings{"Yak"});
  EXPECT_EQ(names(top("--filter PRETEND --sort cache")), (strings{"Yak", "zebra"}));
  EXPECT_EQ(names(top("--filter none-such")), strings{});
  EXPECT_EQ(names(top(id(small))), strings{"zebra"});
  const auto none = run("top --once --filter none-such");
  EXPECT_EQ(none.status, 0);
  EXPECT_NE(none.out.find("Nothing matches 'none-such'"), std::string::npos) << none.out;
}

// An interval measures: all requests of that time are hits.
TEST_F(cli_top, rates_are_those_of_the_interval) {
  child_process child([](line& talk) {
    local_fixture f({.name = "busy", .publish_statistics = true});
    f.touch(0x10000, 0x11000);
    talk.send(true);
    pollfd over{talk.number(), POLLIN, 0};
    while (::poll(&over, 1, 1) == 0) f.touch(0x10000, 0x11000);  // until the test hangs up
    return 0;
  });
  ASSERT_TRUE(child.talk().receive<bool>());
  static_cast<void>(top_until(id(child), [](const json& all) {  // until the miss is published
    const auto& caches = all.at("processes").at(0).at("caches");
    return caches.size() == 1 && caches[0].at("counters").at("misses") == 1;
  }));
  json cache;
  const auto is_measured = [&] {
    return cache.at("interval_s") > 0.05 && cache.at("requests_per_s") > 0 && cache.at("requests_per_s") <= 1100;
  };
  int tries = 0;  // a busy machine may publish nothing meanwhile, or read counters late
  do cache = top("--interval 400ms").at("processes").at(0).at("caches").at(0);
  while (!is_measured() && ++tries < 20);
  EXPECT_TRUE(is_measured()) << cache;
  EXPECT_EQ(cache.at("hit_rate_of_interval"), 1.0);
  EXPECT_LT(cache.at("hit_rate"), 1.0);
  EXPECT_EQ(cache.at("misses_per_s"), 0);
}

TEST_F(cli_top, json_is_a_line_for_each_refresh) {
  child_process child([](line& talk) { return with_published_cache(talk, "lines", 1); });
  ASSERT_TRUE(child.talk().receive<bool>());
  background_run running("top --json --interval 0.1");
  for (int tries = 0; tries < 3000 && std::ranges::count(running.output(), '\n') < 3; ++tries)
    std::this_thread::sleep_for(20ms);
  ::kill(running.pid(), SIGTERM);
  const auto ended = running.ended_within(60s);
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->status, -1) << "ends by the signal";
  const auto lines = lines_of(ended->out);
  ASSERT_GE(lines.size(), 3U);
  for (const auto& one : lines) EXPECT_EQ(names(json::parse(one)), std::vector<std::string>{"lines"});
}

TEST_F(cli_top, reads_a_thousand_pages) {
  child_process child([](line& talk) { return with_published_cache(talk, "one of many", 3); });
  ASSERT_TRUE(child.talk().receive<bool>());
  static_cast<void>(
      top_until(id(child), [](const json& all) { return all.at("processes").at(0).at("bytes") == 0x3000; }));
  auto parts = read_parts(top(id(child)).at("processes").at(0).at("path"));
  child.kill();
  constexpr int pages = 1000;
  for (int i = 1; i < pages; ++i) {
    parts.header.pid = 5000000 + i;  // above the kernel's limit
    parts.header.command = {'m', 'a', 'd', 'e'};
    write_parts(parts, std::to_string(parts.header.pid) + "." + std::to_string(parts.header.start_time) + ".1.0");
  }
  auto seen = top("");
  for (int tries = 0; tries < 5 && seen.at("reading_s") >= 5.0; ++tries) seen = top("");  // on a busy machine
  ASSERT_EQ(seen.at("processes").size(), std::size_t{pages});
  std::uint64_t bytes = 0, acquires = 0;
  for (const auto& one : seen.at("processes")) {
    bytes += one.at("bytes").get<std::uint64_t>();
    acquires += one.at("caches").at(0).at("counters").at("acquires").get<std::uint64_t>();
  }
  EXPECT_EQ(bytes, pages * 0x3000U);
  EXPECT_EQ(acquires, pages * 3U);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(lines_of(run("top --once").out).size(), 4U + pages * 3U);
  const std::chrono::duration<double> table = std::chrono::steady_clock::now() - start;
  std::cout << "1000 pages read in " << seen.at("reading_s") << " s, a table printed in " << table.count() << " s\n";
  EXPECT_LT(seen.at("reading_s"), 5.0) << "0.2 s on a machine that does nothing else";
}

TEST_F(cli_top, pages_that_are_not_named_as_the_processs_are_not_read) {
  const auto own = std::to_string(::getpid());
  const auto path = forged_page().write(folder_);
  EXPECT_EQ(top(own).at("processes").size(), 1U);
  std::filesystem::rename(path, folder_ / "5000000.1.1.0");
  EXPECT_EQ(run("top --once --json " + own).status, 1);
}

TEST_F(cli_top, reads_so_many_pages_of_one_process_and_no_more) {
  const auto own = std::to_string(::getpid());
  const auto path = forged_page().write(folder_);
  for (std::size_t i = 0; i < observation::most_pages_of_process; ++i)
    std::filesystem::create_hard_link(path, folder_ / (own + ".1.1." + std::to_string(i + 1)));
  const auto seen = top(own);
  EXPECT_EQ(seen.at("processes").size(), observation::most_pages_of_process);
  EXPECT_EQ(seen.at("unreadable").size(), 1U);
  const auto metrics = run("metrics " + own);
  EXPECT_EQ(metrics.status, 1);
  EXPECT_NE(metrics.complaints.find("too many pages"), std::string::npos) << metrics.complaints;
}

TEST_F(cli_top, reads_so_many_caches_of_one_process_and_no_more) {
  const auto own = std::to_string(::getpid());
  forged_page page;
  page.header.caches_made = observation::most_caches;
  auto bytes = page.bytes();
  for (std::size_t i = 1; i < observation::most_caches; ++i)
    std::memcpy(bytes.data() + observation::caches_from + i * observation::cache_slot_bytes, &page.cache,
                sizeof page.cache);
  const auto path = page.write(folder_);
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  for (int i = 1; i < 5; ++i) std::filesystem::create_hard_link(path, folder_ / (own + ".1.1." + std::to_string(i)));
  EXPECT_EQ(top("").at("processes").size(), 5U);
  const auto seen = top(own);
  EXPECT_EQ(seen.at("processes").size(), 4U) << "they have 256 caches";
  EXPECT_EQ(seen.at("unreadable").size(), 1U);
}

// As PID 1 of each container has, where containers share the folder.
TEST_F(cli_top, page_of_a_running_process_is_read_after_many_of_ended_ones_with_its_pid) {
  const auto own = std::to_string(::getpid());
  forged_page running;
  running.header.locked = 1;
  set_text(running.cache.name, "alive");
  const int file = ::open(running.write(folder_).c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(::flock(file, LOCK_EX | LOCK_NB), 0);
  forged_page ended;
  ended.header.start_time = 1;
  const auto path = ended.write(folder_);
  constexpr auto most = observation::most_pages_of_process;
  for (std::size_t i = 1; i <= most; ++i)
    std::filesystem::create_hard_link(path, folder_ / (own + ".1.1." + std::to_string(i)));

  const auto all = top("");
  EXPECT_EQ(all.at("processes").size(), most + 2);
  EXPECT_EQ(all.at("unreadable").size(), 0U);
  const auto metrics = run("metrics");
  EXPECT_EQ(metrics.status, 0) << metrics.complaints;
  EXPECT_NE(metrics.out.find("alive"), std::string::npos);

  const auto named = top(own);
  EXPECT_EQ(named.at("processes").size(), most);
  EXPECT_EQ(std::ranges::count_if(named.at("processes"), [](const json& one) { return one.at("state") != "ended"; }),
            1);
  EXPECT_EQ(run("watch --seconds 100ms " + own).complaints, "") << "it would say that the process was killed";
  ::chmod(folder_.c_str(), 0777);
  EXPECT_EQ(top("").at("processes").size(), most) << "others may write to the folder";
  ::close(file);
}

TEST_F(cli_top, damaged_pages_do_not_crash_it) {
  const char* given = std::getenv("PINFOLD_TEST_SEED");
  const auto seed = given != nullptr ? std::stoull(given) : std::random_device()();
  SCOPED_TRACE("PINFOLD_TEST_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  child_process child(with_varied_requests);
  ASSERT_TRUE(child.talk().receive<statistics>());
  const auto good = read_parts(top(id(child)).at("processes").at(0).at("path"));
  for (int i = 0; i < 200; ++i) {
    auto parts = good;
    const auto damage = [&](void* to, std::size_t bytes) {
      const std::uint64_t words[] = {random(), UINT64_MAX, 0, 1, std::uint64_t{1} << (random() % 64)};
      auto* const at = static_cast<std::byte*>(to) + random() % (bytes / 8) * 8;
      std::memcpy(at, &words[random() % std::size(words)], 8);
    };
    for (auto times = random() % 3; times > 0; --times) damage(&parts.header, sizeof parts.header);
    for (auto times = random() % 200; times > 0; --times) damage(&parts.cache, sizeof parts.cache);
    const auto name = std::to_string(5000000 + i) + ".1.1.0";
    write_parts(parts, name);
    if (random() % 8 == 0)
      std::filesystem::resize_file(folder_ / name, random() % (observation::caches_from + sizeof parts.cache));
  }
  const auto seen = top("--ended --interval 0.1");
  EXPECT_EQ(seen.at("processes").size() + seen.at("unreadable").size(), 201U);
  for (const auto& order : {"requests", "hits", "open", "cache"}) {
    const auto text = run(std::string("top --once --ended --sort ") + order);
    EXPECT_EQ(text.status, 0) << text.complaints;
    expect_narrow(text.out);
    EXPECT_TRUE(std::ranges::all_of(text.out, [](char one) { return one == '\n' || (one >= ' ' && one <= '~'); }));
  }
}

TEST_F(cli_top, says_what_it_needs) {
  expect_each_refused({{"top", "--once prints one table"},
                       {"top --interval 0", "'0' is not in the range 0.1 to 86400"},
                       {"top --once 0", "0"},
                       {"top --once --sort size", "size"},
                       {"top --once --interval 1ms", "0.1"},
                       {"top --once --interval x", "not a duration"}});
  const auto none = run("top --once");
  EXPECT_EQ(none.status, 0);
  EXPECT_NE(none.out.find("PINFOLD_STATS=on"), std::string::npos) << none.out;
  const auto no_page = run("top --once " + std::to_string(getpid()));
  EXPECT_EQ(no_page.status, 1);
  EXPECT_NE(no_page.complaints.find("process " + std::to_string(getpid()) + " publishes no statistics page"),
            std::string::npos)
      << no_page.complaints;
}

}  // namespace
}  // namespace pinfold::testing::cli_top_test
