// SPDX-License-Identifier: BSD-3-Clause
// The life of a cache and its entries: R36, R40-R45, R47, R49.
#include "support/fixtures/cache_checks.hpp"
#include "support/fixtures/local_fixture.hpp"

#include "index/entry.hpp"

#include <mutex>
#include <thread>

namespace pinfold::testing::life_test {
namespace {

using namespace std::chrono_literals;

/// A sink that keeps copies of its events.
struct listener {
  struct heard {
    event_kind kind;
    range where;
    std::uint64_t leases;
    std::int32_t owner;
    std::int32_t native;
    std::string text;
  };
  std::mutex mutex;
  std::vector<heard> all;

  event_sink sink() {
    return [this](const event& what) {
      std::lock_guard guard(mutex);
      all.push_back({what.kind, what.where, what.leases, what.owner, what.cause == nullptr ? 0 : what.cause->native,
                     describe(what)});
    };
  }
  std::size_t count(event_kind kind) {
    std::lock_guard guard(mutex);
    return static_cast<std::size_t>(
        std::count_if(all.begin(), all.end(), [&](const auto& e) { return e.kind == kind; }));
  }
};

std::optional<error> closes_fail(driver_call call, const fake_handle&) {
  if (call == driver_call::open) return std::nullopt;
  return error{errc::driver_error, native_kind::posix, 5, "the close fails"};
}

TEST(life, R36_invalidation_defers_the_close) {
  fake_fixture f;
  const auto handle = f.world->allocate(1, 0x10000, 64);
  f.touch(handle);
  f.cache.invalidate({1}, {0x10010, 0x10011});
  EXPECT_EQ(f.world->closes, 0U) << "no deregistration inside the event";
  EXPECT_FALSE(f.find(handle));
  f.touch(f.world->allocate(1, 0x90000, 64));
  EXPECT_EQ(f.world->closes, 1U) << "the next miss does it";
}

TEST(life, R36_reaper_closes_invalidated_entries) {
  fake_fixture f({.closes = close_policy::deferred, .reaper = true});
  for (std::uint64_t i = 1; i <= 50; ++i) f.touch(f.world->allocate(1, 0x10000 * i, 64));
  f.cache.invalidate({1}, {0, UINTPTR_MAX});
  for (int i = 0; i < 60'000 && f.world->open_count() > 0; ++i) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(f.world->open_count(), 0U);
}

TEST(life, R40_only_the_transitions_of_the_table_exist) {
  using enum entry_state;
  const std::vector<std::pair<entry_state, entry_state>> table = {
      {free, opening},        {opening, live},  {opening, draining},    {opening, failed},
      {opening, quarantined}, {failed, free},   {live, draining},       {live, closing},
      {live, evicting},       {evicting, live}, {evicting, draining},   {evicting, closing},
      {draining, closing},    {closing, free},  {closing, quarantined}, {quarantined, closing}};
  const entry_state all[] = {free, opening, failed, live, evicting, draining, closing, quarantined};
  for (const auto from : all)
    for (const auto to : all)
      EXPECT_EQ(index::entry::may_become(from, to),
                std::find(table.begin(), table.end(), std::pair(from, to)) != table.end())
          << name_of(from) << " -> " << name_of(to);
}

TEST(life, R41_failed_close_is_kept_counted_listed_and_retried) {
  listener heard;
  fake_fixture f({.sink = heard.sink()});
  const auto handle = f.world->allocate(1, 0x10000, 64);
  f.touch(handle);
  f.world->inject(closes_fail);
  auto flushed = f.cache.flush();
  ASSERT_FALSE(flushed);
  EXPECT_EQ(flushed.error().native, 5);
  EXPECT_EQ(heard.count(event_kind::close_failed), 1U);
  EXPECT_EQ(heard.all.back().native, 5);
  auto now = f.cache.statistics();
  EXPECT_EQ(now.quarantined, 1U);
  EXPECT_EQ(now.failed_closes, 1U);
  EXPECT_EQ(now.entries_now, 1U) << "it still counts against the budget";
  ASSERT_EQ(f.cache.dump().size(), 1U);
  EXPECT_EQ(f.cache.dump()[0].state, entry_state::quarantined);
  EXPECT_FALSE(f.find(handle)) << "not handed out";
  EXPECT_EQ(f.acquire(handle).error().code, errc::in_use_conflict);
  f.world->heal();
  f.touch(handle);
  EXPECT_EQ(f.cache.statistics().quarantined, 0U);
  f.expect_sound();
}

TEST(life, R42_destruction_closes_everything_once) {
  auto world = std::make_shared<fake_world>();
  {
    import_cache cache(fake_importer{world});
    for (std::uint64_t i = 1; i <= 100; ++i) {
      const auto handle = world->allocate(1, 0x10000 * i, 64);
      ASSERT_TRUE(cache.acquire({1}, handle, handle.base, 64));
    }
  }
  EXPECT_EQ(world->open_count(), 0U);
  EXPECT_EQ(world->closes, 100U);
  EXPECT_EQ(world->misuses, 0U);
}

/// The driver refuses that many closes.
void refuse_closes(fake_world& world, int count) {
  world.inject([left = std::make_shared<int>(count)](driver_call call, const fake_handle&) -> std::optional<error> {
    if (call == driver_call::open || (*left)-- <= 0) return std::nullopt;
    return error{errc::driver_error, native_kind::posix, EBUSY, "the device is busy"};
  });
}

TEST(life, R42_destruction_retries_a_refused_close_until_the_drain_timeout) {
  for (const auto time : {30s, 0s}) {
    SCOPED_TRACE(time.count());
    auto world = std::make_shared<fake_world>();
    {
      import_cache cache(fake_importer{world}, {.drain_timeout = time});
      const auto handle = world->allocate(1, 0x10000, 64);
      ASSERT_TRUE(cache.acquire({1}, handle, handle.base, 64));
      refuse_closes(*world, time == 0s ? 1'000 : 5);
    }
    EXPECT_EQ(world->open_count(), time == 0s ? 1U : 0U);
    EXPECT_EQ(world->misuses, 0U);
  }
}

TEST(life, R42_destruction_waits_for_leases) {
  auto world = std::make_shared<fake_world>();
  auto cache = std::make_unique<import_cache<fake_importer>>(fake_importer{world}, cache_options{.drain_timeout = 60s});
  const auto handle = world->allocate(1, 0x10000, 64);
  auto lease = cache->acquire({1}, handle, 0x10000, 64);
  std::atomic<bool> released{false};
  std::thread later([&] {
    std::this_thread::sleep_for(30ms);
    EXPECT_EQ(serial_at(lease->data()), handle.serial);
    released = true;
    lease->release();
  });
  cache.reset();
  EXPECT_TRUE(released);
  later.join();
  EXPECT_EQ(world->open_count(), 0U);
}

TEST(life, R42_lease_that_outlives_its_cache_reads_as_closed) {
  listener heard;
  auto world = std::make_shared<fake_world>();
  auto cache = std::make_unique<import_cache<fake_importer>>(fake_importer{world},
                                                             cache_options{.drain_timeout = 5ms, .sink = heard.sink()});
  const auto handle = world->allocate(1, 0x10000, 64);
  auto first = cache->acquire({1}, handle, 0x10000, 64);
  auto second = cache->acquire({1}, handle, 0x10000, 64);
  cache.reset();
  EXPECT_EQ(world->open_count(), 0U);
  EXPECT_EQ(heard.count(event_kind::leases_outlive_cache), 1U);
  EXPECT_TRUE(first->closed());
  EXPECT_EQ(first->data(), nullptr);
  EXPECT_TRUE(first->release());
  EXPECT_TRUE(second->closed()) << "its memory is valid until it is gone, too";
  EXPECT_EQ(world->closes, 1U);
}

TEST(life, R42_quiesce_refuses_while_leases_are_out) {
  fake_fixture f;
  const auto handle = f.world->allocate(1, 0x10000, 64);
  f.touch(f.world->allocate(1, 0x20000, 64));
  auto lease = f.acquire(handle);
  EXPECT_EQ(f.cache.quiesce().error().code, errc::in_use_conflict);
  EXPECT_EQ(f.world->closes, 0U);
  EXPECT_TRUE(lease->release());
  EXPECT_TRUE(f.cache.quiesce());
  EXPECT_EQ(f.world->open_count(), 0U);
}

TEST(life, R43_misses_are_counted_by_cause) {
  fake_fixture f({.max_count = 1});
  const auto a = f.world->allocate(1, 0x100000, 64);
  const auto b = f.world->allocate(1, 0x200000, 64);
  f.touch(a);  // cold
  f.touch(b);  // cold, evicts a
  f.touch(a);  // evicted
  f.cache.invalidate({1}, a.allocation());
  f.touch(a);                                    // invalidated
  f.touch(f.world->allocate(1, 0x100000, 128));  // extent
  const auto now = f.cache.statistics();
  EXPECT_EQ(now.misses_cold, 2U);
  EXPECT_EQ(now.misses_evicted, 1U);
  EXPECT_EQ(now.misses_invalidated, 1U);
  EXPECT_EQ(now.misses_extent, 1U);
  EXPECT_EQ(now.misses, 5U);
  f.expect_sound();
}

TEST(life, R43_statistics_do_not_wait_for_an_open) {
  fake_fixture f;
  const auto cached = f.world->allocate(1, 0x10000, 64);
  auto kept = f.acquire(cached);
  EXPECT_EQ(f.cache.statistics().peak_leases, 1U) << "the highest that a reading has seen";
  std::atomic<bool> read{false};
  f.world->inject([&](driver_call, const fake_handle&) -> std::optional<error> {
    const auto until = std::chrono::steady_clock::now() + 60s;  // if the statistics wait for this open
    while (!read && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(1ms);
    return std::nullopt;
  });
  std::thread opener([&, slow = f.world->allocate(1, 0x20000, 64)] { f.touch(slow); });
  while (f.world->busy == 0) std::this_thread::yield();
  const auto now = f.cache.statistics();
  EXPECT_EQ(f.world->busy, 1U);
  EXPECT_EQ(now.entries_now, 2U) << "the one being opened counts already";
  EXPECT_EQ(now.open, 1U);
  read = true;
  opener.join();
  f.world->heal();
}

TEST(life, R44_statistics_are_sent_to_the_sink_at_exit) {
  listener heard;
  {
    fake_fixture f({.name = "gpu0", .sink = heard.sink(), .statistics_at_exit = true});
    f.touch(f.world->allocate(1, 0x10000, 64));
  }
  ASSERT_EQ(heard.count(event_kind::statistics), 1U);
  EXPECT_NE(heard.all.back().text.find("misses=1"), std::string::npos) << heard.all.back().text;
  EXPECT_NE(heard.all.back().text.find("gpu0"), std::string::npos) << heard.all.back().text;
}

TEST(life, R44_statistics_at_exit_name_the_monitors_of_local_memory) {
  listener heard;
  {
    local_fixture f({.sink = heard.sink(), .statistics_at_exit = true});
  }
  ASSERT_EQ(heard.count(event_kind::statistics), 1U);
  EXPECT_NE(heard.all.back().text.find("; monitors: manual"), std::string::npos) << heard.all.back().text;
}

TEST(life, R45_dump_lists_every_entry) {
  fake_fixture f({.entry_statistics = true});
  const auto live = f.world->allocate(1, 0x10000, 64);
  const auto stale = f.world->allocate(2, 0x20000, 128);
  for (int i = 0; i < 8; ++i) f.touch(live);
  auto held = f.acquire(stale);
  f.cache.invalidate({2}, stale.allocation());
  std::this_thread::sleep_for(40ms);
  auto listed = f.cache.dump();
  ASSERT_EQ(listed.size(), 2U);
  EXPECT_EQ(listed[0].state, entry_state::live);
  EXPECT_EQ(listed[0].peer, peer_id{1});
  EXPECT_EQ(listed[0].hits, 7U) << "exact, as asked for";
  EXPECT_STREQ(listed[0].kind, "pretend");
  EXPECT_EQ(listed[1].state, entry_state::draining);
  EXPECT_EQ(listed[1].leases, 1U);
  EXPECT_EQ(listed[1].bytes, 128U);
  EXPECT_GT(listed[1].age, 15ms);
  EXPECT_LT(listed[1].age, 60s);
  EXPECT_NE(listed[1].owner, 0);
}

TEST(life, R45_hits_are_sampled_without_entry_statistics) {
  fake_fixture f;
  const auto handle = f.world->allocate(1, 0x10000, 64);
  for (int i = 0; i < 5121; ++i) f.touch(handle);
  EXPECT_EQ(f.cache.dump()[0].hits, 5120U);
}

TEST(life, R47_release_returns_the_error_of_the_close) {
  fake_fixture f({.retain = false});
  const auto handle = f.world->allocate(1, 0x10000, 64);
  auto lease = f.acquire(handle);
  f.world->inject(closes_fail);
  auto released = lease->release();
  ASSERT_FALSE(released);
  EXPECT_EQ(released.error().native, 5);
  EXPECT_TRUE(lease->release()) << "there is nothing to release twice";
  EXPECT_FALSE(static_cast<bool>(*lease));
  f.world->heal();
  EXPECT_TRUE(f.cache.flush());
  f.expect_sound();
}

TEST(life, R47_destructor_reports_a_failed_close_to_the_sink) {
  listener heard;
  fake_fixture f({.retain = false, .sink = heard.sink()});
  {
    auto lease = f.acquire(f.world->allocate(1, 0x10000, 64));
    f.world->inject(closes_fail);
  }
  EXPECT_EQ(heard.count(event_kind::close_failed), 1U);
  f.world->heal();
}

TEST(life, R47_destructor_retries_a_refused_close_once) {
  listener heard;
  std::shared_ptr<fake_world> world;
  int left = 1;
  {
    fake_fixture f({.sink = heard.sink()});
    world = f.world;
    for (const std::uint64_t base : {0x10000U, 0x20000U, 0x30000U}) f.touch(world->allocate(1, base, 64));
    world->inject([&](driver_call call, const fake_handle&) -> std::optional<error> {
      if (call != driver_call::close || left-- <= 0) return std::nullopt;
      return error{errc::in_use_conflict, native_kind::posix, 16, "not yet"};
    });
  }
  EXPECT_EQ(heard.count(event_kind::close_failed), 1U);
  EXPECT_EQ(world->open_count(), 0U);
}

TEST(life, R49_invalidation_under_a_lease_is_sent_to_the_sink) {
  listener heard;
  fake_fixture f({.sink = heard.sink()});
  const auto handle = f.world->allocate(1, 0x10000, 64);
  auto lease = f.acquire(handle);
  f.cache.invalidate({1}, handle.allocation());
  EXPECT_EQ(f.cache.statistics().invalidated_while_leased, 1U);
  ASSERT_EQ(heard.count(event_kind::invalidated_while_leased), 1U);
  EXPECT_EQ(heard.all.back().where, handle.allocation());
  EXPECT_EQ(heard.all.back().owner, ::gettid());
  EXPECT_EQ(f.cache.dump()[0].state, entry_state::draining);
}

TEST(life, R49_every_lease_invalidated_at_once_is_sent_to_the_sink) {
  listener heard;
  fake_fixture f({.sink = heard.sink()});
  std::vector<import_cache<fake_importer>::lease> leases;
  for (std::uint64_t i = 1; i <= 100; ++i) leases.push_back(*f.acquire(f.world->allocate(1, 0x10000 * i, 64)));
  f.cache.invalidate({1}, {0, UINTPTR_MAX});
  EXPECT_EQ(heard.count(event_kind::invalidated_while_leased), 100U);
  leases.clear();
  EXPECT_EQ(f.world->open_count(), 0U);
}

TEST(life, sink_that_throws_is_counted_and_harmless) {
  fake_fixture f({.sink = [](const event&) { throw 1; }});
  const auto handle = f.world->allocate(1, 0x10000, 64);
  auto lease = f.acquire(handle);
  f.cache.invalidate({1}, handle.allocation());
  EXPECT_EQ(f.cache.statistics().sink_failures, 1U);
}

TEST(life, cache_can_be_moved) {
  auto world = std::make_shared<fake_world>();
  import_cache first(fake_importer{world});
  const auto handle = world->allocate(1, 0x10000, 64);
  auto lease = first.acquire({1}, handle, 0x10000, 64);
  import_cache second(std::move(first));
  EXPECT_TRUE(second.find({1}, handle, 0x10000, 64));
  EXPECT_TRUE(lease->release());
  second = import_cache(fake_importer{world});
  EXPECT_EQ(world->open_count(), 0U);
}

}  // namespace
}  // namespace pinfold::testing::life_test
