// SPDX-License-Identifier: BSD-3-Clause
// The ring of events on the statistics page.
#include "support/fixtures/local_fixture.hpp"
#include "support/fixtures/statistics_pages.hpp"
#include "support/processes/in_child.hpp"

#include <pinfold/monitors/announce.hpp>
#include <pinfold/observation/reader.hpp>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <vector>

namespace pinfold::testing::statistics_page_events_test {
namespace {

using namespace std::chrono_literals;
using observation::event_id;
using observation::event_reader;
using observation::page_event;

constexpr std::uintptr_t base = 0x10000000;

struct statistics_page_events : ::testing::Test {
  std::string folder = page_folder::path();
};

cache_options publishing(const std::string& name, cache_options options = {}) {
  options.name = name;
  options.publish_statistics = true;
  return options;
}

event_reader reader(bool from_oldest = false) {
  auto made = event_reader::open(page_of().path, from_oldest);
  EXPECT_TRUE(made) << describe(made.error());
  return *std::move(made);
}

std::vector<page_event> read(event_reader& from) {
  auto seen = from.read();
  EXPECT_TRUE(seen);
  return seen ? *std::move(seen) : std::vector<page_event>{};
}

std::vector<page_event> of_kind(event_id kind, const std::vector<page_event>& in) {
  std::vector<page_event> found;
  for (const auto& one : in)
    if (one.record.kind == static_cast<std::uint32_t>(kind)) found.push_back(one);
  return found;
}

TEST_F(statistics_page_events, evictions_have_range_and_age) {
  local_fixture f(publishing("evicts", {.max_count = 1, .shards = 1}));
  auto events = reader();
  f.touch(base, base + 0x1000);
  f.touch(base + 0x10000, base + 0x11000);
  const auto seen = of_kind(event_id::evicted, read(events));
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].record.begin, base);
  EXPECT_EQ(seen[0].record.end, base + 0x1000);
  EXPECT_EQ(seen[0].record.thread, ::gettid());
  EXPECT_EQ(seen[0].record.cache, published("evicts")->number);
}

TEST_F(statistics_page_events, invalidations_name_the_range_and_the_leases) {
  local_fixture f(publishing("stale"));
  auto events = reader();
  const auto lease = f.acquire(base, base + 0x1000);
  f.touch(base + 0x10000, base + 0x11000);
  f.invalidate(base, base + 0x20000);
  const auto all = read(events);
  const auto invalidated = of_kind(event_id::invalidated, all);
  const auto leased = of_kind(event_id::leased_memory_gone, all);
  std::uint64_t marked = 0;
  for (const auto& one : invalidated) marked += one.record.value;
  EXPECT_EQ(marked, 2U);
  ASSERT_EQ(leased.size(), 1U);
  EXPECT_EQ(leased[0].record.begin, base);
  EXPECT_EQ(leased[0].record.value, 1U);
}

TEST_F(statistics_page_events, announcements_are_of_the_program) {
  local_fixture f(publishing("announced"));
  auto events = reader();
  f.touch(base, base + 0x1000);
  announce_gone(reinterpret_cast<void*>(base), 0x1000);
  const auto seen = of_kind(event_id::gone, read(events));
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].record.begin, base);
  EXPECT_EQ(seen[0].record.native, static_cast<int>(observation::gone_source::program));
}

TEST_F(statistics_page_events, failures_have_native_codes) {
  local_fixture f(publishing("fails"));
  auto events = reader();
  f.device->fail_opens(
      [](const range&, access_flags) { return error{errc::not_permitted, native_kind::posix, 13, "no"}; });
  EXPECT_FALSE(f.acquire(base, base + 0x1000));
  const auto seen = of_kind(event_id::open_failed, read(events));
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].record.native, 13);
}

TEST_F(statistics_page_events, acquires_that_call_no_driver_fail_with_their_reason) {
  auto options = publishing("refused");
  options.max_bytes = 0x1000;
  local_fixture f(options);
  auto events = reader();
  EXPECT_FALSE(f.acquire(base, base + 0x2000));
  const auto seen = of_kind(event_id::request_failed, read(events));
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].record.begin, base);
  EXPECT_EQ(seen[0].record.end, base + 0x2000);
  const auto page = published("refused");
  ASSERT_TRUE(page);
  ASSERT_EQ(page->errors.size(), 1U);
  EXPECT_EQ(page->errors[0].call, static_cast<std::uint32_t>(observation::driver_call::acquire));
  EXPECT_EQ(page->errors[0].code, static_cast<std::uint32_t>(errc::larger_than_budget));
  f.device->fail_opens([](const range&, access_flags) { return error{}; });
  EXPECT_FALSE(f.acquire(base, base + 0x1000));
  EXPECT_TRUE(of_kind(event_id::request_failed, read(events)).empty()) << "the failed open is an event";
}

TEST_F(statistics_page_events, slow_calls_are_events) {
  local_fixture f(publishing("slow"));
  auto events = reader();
  f.device->call_takes = 110ms;
  f.touch(base, base + 0x1000);
  const auto seen = of_kind(event_id::slow_call, read(events));
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_GE(seen[0].record.value, 110'000'000U);
}

TEST_F(statistics_page_events, stale_imports_are_events) {
  fake_fixture f(publishing("replaced"));
  auto events = reader();
  f.touch(f.world->allocate(1, 0x10000, 64));
  f.touch(f.world->allocate(1, 0x10000, 64));
  EXPECT_EQ(of_kind(event_id::replaced, read(events)).size(), 1U);
}

// The hooks report a real munmap(2), with its caller if a reader wants that.
TEST_F(statistics_page_events, unmaps_have_the_stack_of_their_caller_on_request) {
  run_in_child([] {
    cache_options options = publishing("hooked");
    options.monitor = monitor_choice::automatic;
    pinfold::cache<fake_registrar> cache(fake_registrar(std::make_shared<fake_device>()), options);
    if (cache.monitors().find("hooks") == std::string::npos) {
      std::printf("no hooks here: %s\n", cache.monitors().c_str());
      return;
    }
    auto events = reader();
    constexpr auto hooks = static_cast<int>(observation::gone_source::hooks);
    const auto unmap = [&] {
      void* const memory = ::mmap(nullptr, 0x10000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      EXPECT_TRUE(cache.acquire(memory, 0x10000));  // no event tells of memory that no cache has registered
      ::munmap(memory, 0x10000);
      return reinterpret_cast<std::uintptr_t>(memory);
    };
    const auto find = [&](std::uintptr_t memory) {
      for (const auto& one : of_kind(event_id::gone, read(events)))
        if (one.record.begin == memory && one.record.native == hooks) return std::optional(one);
      return std::optional<page_event>{};
    };
    const auto without = find(unmap());
    if (!without) {
      std::printf("the hooks do not see this munmap: a sanitizer replaces it\n");
      return;
    }
    EXPECT_TRUE(without->stack.empty());
    ASSERT_TRUE(events.want_stacks(60s));
    const auto with = find(unmap());
    ASSERT_TRUE(with);
    EXPECT_GE(with->stack.size(), 3U);
    ASSERT_TRUE(events.want_stacks(0s));
    EXPECT_TRUE(find(unmap())->stack.empty());
  });
}

// Names of pages look like addresses of the Internet, as other files' names do.
TEST_F(statistics_page_events, request_for_stacks_is_written_to_no_other_file_of_the_pages_name) {
  run_in_child([] {
    const local_fixture f(publishing("moved"));
    auto events = reader();
    const auto path = page_of().path;
    std::filesystem::rename(path, path + ".moved");
    std::ofstream(path) << std::string(1000, 'x');
    const auto refused = events.want_stacks(60s);
    std::filesystem::remove(path + ".moved");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, errc::invalid_handle);
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    EXPECT_EQ(text.str(), std::string(1000, 'x'));
    std::filesystem::remove(path);
  });
}

TEST_F(statistics_page_events, readers_that_are_late_are_told_how_much_they_missed) {
  local_fixture f(publishing("late", {.max_count = 1, .shards = 1}));
  auto events = reader();
  const auto before = page_of().events_written;
  for (std::uintptr_t i = 0; i < 3000; ++i) f.touch(base + (i % 2) * 0x10000, base + (i % 2) * 0x10000 + 0x1000);
  const auto seen = read(events);
  EXPECT_EQ(seen.size() + events.lost(), page_of().events_written - before);
  EXPECT_GE(events.lost(), 1900U);
  EXPECT_GT(seen.size(), observation::most_events / 2);
  EXPECT_TRUE(read(events).empty());
}

// Each writer's values carry its own mark: an event mixed from two of them would show.
TEST_F(statistics_page_events, stress_events_are_whole) {
  local_fixture f(publishing("stress"));
  auto events = reader();
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (std::uintptr_t t = 1; t <= 3; ++t) f.touch(t << 40U, (t << 40U) + 0x10000000);
  for (std::uintptr_t t = 1; t <= 3; ++t)
    threads.emplace_back([&, t] {
      for (std::uintptr_t i = 0; !done; ++i) {
        const auto at = (t << 40U) + i % 1000 * 0x10000;
        announce_gone(reinterpret_cast<void*>(at), t * 0x1000);
      }
    });
  std::map<std::uint64_t, std::uint64_t> seen;
  const auto end = std::chrono::steady_clock::now() + 1500ms;
  std::uint64_t last = 0;
  while (std::chrono::steady_clock::now() < end || seen.size() < 3) {
    for (const auto& one : of_kind(event_id::gone, read(events))) {
      if (one.record.begin < base) continue;
      EXPECT_EQ(one.record.end - one.record.begin, (one.record.begin >> 40U) * 0x1000);
      EXPECT_TRUE(last == 0 || one.number > last);
      last = one.number;
      ++seen[one.record.begin >> 40U];
    }
  }
  done = true;
  for (auto& one : threads) one.join();
}

}  // namespace
}  // namespace pinfold::testing::statistics_page_events_test
