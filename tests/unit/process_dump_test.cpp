// SPDX-License-Identifier: BSD-3-Clause
// Caches and entries as they are read from the memory of a process.
#include "debugging/table.hpp"
#include "os/file.hpp"
#include "os/mutex.hpp"
#include "support/fixtures/cache_checks.hpp"
#include "support/fixtures/local_fixture.hpp"
#include "support/host/privileges.hpp"
#include "support/host/settings.hpp"
#include "support/processes/child_process.hpp"

#include <pinfold/process_dump.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <fcntl.h>
#include <random>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace pinfold::testing::process_dump_test {
namespace {

using namespace std::chrono_literals;

const dumped_cache* cache_named(const process_dump& in, const std::string& name) {
  const auto found = std::ranges::find(in.caches, name, &dumped_cache::name);
  return found == in.caches.end() ? nullptr : &*found;
}

process_dump dumped(int process) {
  auto found = dump_process(process);
  EXPECT_TRUE(found) << describe(found.error());
  return found ? *std::move(found) : process_dump{};
}

std::vector<dumped_entry> sorted(std::vector<dumped_entry> entries) {
  std::ranges::sort(entries, {}, [](const dumped_entry& one) { return std::pair(one.peer.value, one.covered.begin); });
  return entries;
}

std::vector<entry_info> sorted(std::vector<entry_info> entries) {
  std::ranges::sort(entries, {}, [](const entry_info& one) { return std::pair(one.peer.value, one.covered.begin); });
  return entries;
}

/// Expects both to say the same of a cache that no thread uses. `before` is its own list of before it was dumped, and
/// `after`, of after that.
void expect_same(const dumped_cache& seen, const std::vector<entry_info>& before, const std::vector<entry_info>& after,
                 const statistics& counted) {
  EXPECT_TRUE(seen.complete);
  const auto mine = sorted(seen.entries);
  const auto younger = sorted(before);
  const auto own = sorted(after);
  ASSERT_EQ(mine.size(), own.size());
  ASSERT_EQ(mine.size(), younger.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    EXPECT_EQ(mine[i].covered, own[i].covered);
    EXPECT_EQ(mine[i].peer, own[i].peer);
    EXPECT_EQ(mine[i].bytes, own[i].bytes);
    EXPECT_EQ(mine[i].state, own[i].state);
    EXPECT_EQ(mine[i].leases, own[i].leases);
    EXPECT_EQ(mine[i].hits, own[i].hits);
    EXPECT_EQ(mine[i].bypass, own[i].bypass);
    EXPECT_EQ(mine[i].owner, own[i].owner);
    EXPECT_GE(mine[i].age, younger[i].age - 1s);
    EXPECT_LE(mine[i].age, own[i].age + 1s);
  }
  const auto counter = [&](const std::string& name) {
    for (const auto& [one, value] : seen.counters)
      if (one == name) return value;
    ADD_FAILURE() << "no counter " << name;
    return std::uint64_t{0};
  };
  EXPECT_EQ(counter("acquires"), counted.acquires);
  EXPECT_EQ(counter("hits"), counted.hits);
  EXPECT_EQ(counter("valid"), counted.valid);
  EXPECT_EQ(counter("opens"), counted.opens);
  EXPECT_EQ(counter("closes"), counted.closes);
  EXPECT_EQ(counter("evicted"), counted.evicted);
  EXPECT_EQ(counter("misses_cold"), counted.misses_cold);
  EXPECT_EQ(counter("found"), counted.found);
  EXPECT_EQ(seen.bytes_now, counted.bytes_now);
  EXPECT_EQ(seen.entries_now, counted.entries_now);
}

TEST(process_dump, says_of_local_memory_what_the_cache_says) {
  local_fixture f({.name = "own", .max_count = 1000, .shards = 4});
  std::vector<decltype(f.acquire(0, 0))> leases;
  for (std::uintptr_t i = 1; i <= 400; ++i) f.touch(i * 0x10000, i * 0x10000 + 0x2000);
  for (std::uintptr_t i = 1; i <= 50; ++i) leases.push_back(f.acquire(i * 0x10000, i * 0x10000 + 0x1000));
  for (std::uintptr_t i = 1; i <= 10; ++i) leases.push_back(f.acquire(i * 0x10000, i * 0x10000 + 0x1000));
  std::thread([&] { leases.push_back(f.acquire(0x10000, 0x11000)); }).join();
  f.invalidate(0x200000, 0x201000);
  const auto before = f.cache.dump();
  const auto found = dumped(getpid());
  EXPECT_EQ(found.process, getpid());
  EXPECT_EQ(found.copies, 1U);
  EXPECT_EQ(found.unreadable, 0U);
  const auto* const seen = cache_named(found, "own");
  ASSERT_NE(seen, nullptr);
  EXPECT_EQ(seen->registrar, "pretend");
  EXPECT_EQ(seen->shards, 4U);
  EXPECT_EQ(seen->max_count, 1000U);
  EXPECT_FALSE(seen->imports || seen->ended || seen->of_parent);
  expect_same(*seen, before, f.cache.dump(), f.cache.statistics());
}

TEST(process_dump, says_of_imported_memory_what_the_cache_says) {
  fake_fixture f({.name = "imports"});
  std::vector<decltype(f.acquire({}))> leases;
  for (std::uint64_t peer = 1; peer <= 3; ++peer)
    for (std::uint64_t i = 1; i <= 20; ++i) {
      const auto handle = f.world->allocate(peer, 0x10000 * i, 64);
      f.touch(handle);
      if (i % 3 == 0) leases.push_back(f.acquire(handle));
    }
  const auto before = f.cache.dump();
  const auto found = dumped(getpid());
  const auto* const seen = cache_named(found, "imports");
  ASSERT_NE(seen, nullptr);
  EXPECT_TRUE(seen->imports);
  expect_same(*seen, before, f.cache.dump(), f.cache.statistics());
  for (const auto& one : seen->entries) EXPECT_NE(one.data, one.covered.begin);
}

TEST(process_dump, names_the_flags_of_entries) {
  local_fixture f({.name = "flags", .max_count = 3});
  const auto lease = f.acquire(0x10000, 0x11000, local_access, {.persistent = true});
  const auto stale = f.acquire(0x20000, 0x21000, access_flags::local_read);
  f.invalidate(0x20000, 0x21000);
  const auto beside = f.acquire(0x30000, 0x31000, access_flags::remote_write);
  const auto bypass = f.acquire(0x40000, 0x41000, local_access, {.bypass = true});
  const auto found = dumped(getpid());
  const auto* const seen = cache_named(found, "flags");
  ASSERT_NE(seen, nullptr);
  const auto all = sorted(seen->entries);
  ASSERT_EQ(all.size(), 4U);
  const auto flags = [](const dumped_entry& one) {
    return std::vector<bool>{one.persistent, one.stale,  one.hittable, one.bypass,
                             one.unshared,   one.doomed, one.in_driver};
  };
  EXPECT_EQ(flags(all[0]), (std::vector<bool>{true, false, true, false, false, false, false}));
  EXPECT_EQ(flags(all[1]), (std::vector<bool>{false, true, false, false, false, false, false}));
  EXPECT_EQ(flags(all[2]), (std::vector<bool>{false, false, true, false, false, false, false}));
  EXPECT_TRUE(all[3].bypass);
  EXPECT_EQ(all[1].state, entry_state::draining);
  EXPECT_EQ(all[1].access, access_flags::local_read);
  EXPECT_EQ(all[2].access, access_flags::remote_write);
  EXPECT_TRUE(all[0].owner_lives);
  EXPECT_EQ(all[0].owner, gettid());
}

TEST(process_dump, shows_an_open_that_the_driver_is_working_on) {
  local_fixture f({.name = "opening"});
  std::atomic<bool> entered{false};
  std::atomic<bool> go{false};
  f.device->fail_opens([&](const range&, access_flags) -> std::optional<error> {
    entered = true;
    while (!go) std::this_thread::sleep_for(1ms);
    return std::nullopt;
  });
  std::thread opener([&] { f.touch(0x10000, 0x11000); });
  while (!entered) std::this_thread::sleep_for(1ms);
  const auto found = dumped(getpid());
  go = true;
  opener.join();
  const auto* const seen = cache_named(found, "opening");
  ASSERT_NE(seen, nullptr);
  ASSERT_EQ(seen->entries.size(), 1U);
  EXPECT_EQ(seen->entries[0].state, entry_state::opening);
  EXPECT_TRUE(seen->entries[0].in_driver);
  EXPECT_EQ(seen->entries[0].leases, 1U);
  const auto opener_lives = [] { return dumped(getpid()).caches.at(0).entries.at(0).owner_lives; };
  const auto until = std::chrono::steady_clock::now() + 60s;
  bool lives = opener_lives();  // the kernel lists a joined thread a little longer
  for (; lives && std::chrono::steady_clock::now() < until; lives = opener_lives()) std::this_thread::yield();
  EXPECT_FALSE(lives) << "the thread has ended";
}

TEST(process_dump, counts_why_registrations_were_closed) {
  local_fixture f({.name = "history", .max_count = 2});
  for (std::uintptr_t i = 1; i <= 5; ++i) f.touch(i * 0x10000, i * 0x10000 + 0x1000);
  f.invalidate(0x50000, 0x51000);
  const auto found = dumped(getpid());
  const auto* const seen = cache_named(found, "history");
  ASSERT_NE(seen, nullptr);
  EXPECT_EQ(seen->remembered, (std::array<std::uint64_t, 5>{0, 1, 0, 0, 3}));
}

TEST(process_dump, lists_only_caches_that_exist) {
  const auto before = dumped(getpid()).caches.size();
  {
    local_fixture one({.name = "one"});
    local_fixture other({.name = "other"});
    EXPECT_EQ(dumped(getpid()).caches.size(), before + 2);
  }
  EXPECT_EQ(dumped(getpid()).caches.size(), before);
  local_fixture again({.name = "again"});
  const auto found = dumped(getpid());
  EXPECT_EQ(found.caches.size(), before + 1);
  EXPECT_NE(cache_named(found, "again"), nullptr);
}

TEST(process_dump, shows_a_destroyed_cache_whose_lease_is_out) {
  auto device = std::make_shared<fake_device>();
  std::optional<pinfold::cache<fake_registrar>::lease> lease;
  {
    pinfold::cache<fake_registrar> ending(fake_registrar(device), keeping({.name = "ending", .drain_timeout = 0ms}));
    lease = *ending.acquire(reinterpret_cast<void*>(0x10000), 0x1000);
  }
  const auto found = dumped(getpid());
  const auto* const seen = cache_named(found, "ending");
  ASSERT_NE(seen, nullptr);
  EXPECT_TRUE(seen->ended);
  EXPECT_TRUE(lease->release());
  EXPECT_EQ(cache_named(dumped(getpid()), "ending"), nullptr);
}

// --- other processes

/// Takes all mutexes of the first cache, for good.
void hang() PINFOLD_THREAD_ATTRIBUTE(no_thread_safety_analysis) {
  const auto* const listed = debugging::pinfold_debug_v1.caches->load();
  for (std::size_t i = 0; i < listed->about.shard_count; ++i)
    static_cast<os::mutex*>(const_cast<void*>(listed->about.shards[i].mutex))->lock();
}

/// A child with a cache, leases on half of its entries, and perhaps a thread that holds all of its mutexes.
int with_cache(line& talk, bool hung) {
  local_fixture f({.name = "child", .shards = 2});
  std::vector<decltype(f.acquire(0, 0))> leases;
  for (std::uintptr_t i = 1; i <= 100; ++i) {
    auto lease = f.acquire(i * 0x10000, i * 0x10000 + 0x1000);
    if (i % 2 == 0) leases.push_back(std::move(lease));
  }
  if (hung) hang();
  talk.send(true);
  static_cast<void>(talk.receive<bool>());
  std::_Exit(0);  // the mutexes are held
}

void expect_child(const process_dump& found, bool hung) {
  const auto* const seen = cache_named(found, "child");
  ASSERT_NE(seen, nullptr);
  EXPECT_TRUE(seen->complete);
  EXPECT_EQ(seen->entries.size(), 100U);
  EXPECT_EQ(std::ranges::count(seen->entries, 1U, &dumped_entry::leases), 50);
  EXPECT_EQ(std::ranges::count(seen->entries, true, &dumped_entry::owner_lives), 100);
  EXPECT_EQ(seen->locked_shards, hung ? 2U : 0U);
}

TEST(process_dump, reads_a_process_that_runs_that_is_stopped_and_that_hangs) {
  for (const bool hung : {false, true}) {
    child_process child([&](line& talk) { return with_cache(talk, hung); });
    ASSERT_TRUE(child.talk().receive<bool>());
    const auto running = dumped(child.pid());
    EXPECT_FALSE(running.stopped);
    expect_child(running, hung);
    child.stop();
    const auto stopped = dumped(child.pid());
    EXPECT_TRUE(stopped.stopped);
    expect_child(stopped, hung);
    child.go_on();
  }
}

TEST(process_dump, says_that_a_childs_copy_of_a_cache_is_its_parents) {
  local_fixture f({.name = "parent's"});
  f.touch(0x10000, 0x11000);
  child_process child([](line& talk) {
    talk.send(true);
    static_cast<void>(talk.receive<bool>());
    return 0;
  });
  ASSERT_TRUE(child.talk().receive<bool>());
  const auto of_child = dumped(child.pid());
  const auto* const seen = cache_named(of_child, "parent's");
  ASSERT_NE(seen, nullptr);
  EXPECT_TRUE(seen->of_parent);
  EXPECT_EQ(seen->entries.size(), 1U);
  EXPECT_FALSE(cache_named(dumped(getpid()), "parent's")->of_parent);
}

TEST(process_dump, reads_through_a_descriptor_that_another_process_may_have_opened) {
  child_process child([](line& talk) { return with_cache(talk, false); });
  ASSERT_TRUE(child.talk().receive<bool>());
  const os::file there(::open(("/proc/" + std::to_string(child.pid()) + "/mem").c_str(), O_RDONLY | O_CLOEXEC));
  const auto found = dump_process(child.pid(), there.number());
  ASSERT_TRUE(found) << describe(found.error());
  expect_child(*found, false);
  EXPECT_TRUE(there.still_there());
  const os::file empty(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(dump_process(child.pid(), empty.number())->copies, 0U);
  const auto none = dump_process(child.pid(), 1 << 20);
  EXPECT_TRUE(!none && none.error().native == EBADF);
}

int churn(line& talk) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([i] {
      for (;;) {
        local_fixture f({.name = "churn", .max_count = 50});
        for (std::uintptr_t n = 0; n < 3000; ++n)
          f.touch((n % 97 + 1) * 0x10000, (n % 97 + 1) * 0x10000 + 0x1000 * static_cast<unsigned>(i + 1));
      }
    });
  talk.send(true);
  static_cast<void>(talk.receive<bool>());
  std::_Exit(0);
}

TEST(process_dump, reads_a_process_that_changes_and_ends_meanwhile) {
  for (int round = 0; round < 10; ++round) {
    child_process child(churn);
    ASSERT_TRUE(child.talk().receive<bool>());
    std::thread killer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(4 * round));
      ::kill(child.pid(), SIGKILL);
    });
    for (int i = 0; i < 1000; ++i) {
      const auto found = dump_process(child.pid());
      if (!found) {
        EXPECT_EQ(found.error().code, errc::peer_gone) << describe(found.error());
        break;
      }
      for (const auto& cache : found->caches) {
        EXPECT_EQ(cache.name, "churn");
        for (const auto& one : cache.entries) EXPECT_LE(one.state, entry_state::quarantined);
      }
    }
    killer.join();
  }
}

TEST(process_dump, names_processes_that_it_cannot_read) {
  for (const int wrong : {0, -1, 4194304}) {
    const auto none = dump_process(wrong);
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().code, errc::peer_gone);
    EXPECT_EQ(none.error().native, ESRCH);
  }
  child_process zombie([](line&) { return 0; });
  zombie.kill();
  const auto dead = dump_process(zombie.pid());
  EXPECT_TRUE(!dead ? dead.error() == errc::peer_gone : dead->caches.empty());
  child_process other([](line& talk) {
    ::execl("/bin/sleep", "sleep", "600", nullptr);
    talk.send(false);
    return 1;
  });
  const auto until = std::chrono::steady_clock::now() + 60s;
  while (dumped(other.pid()).command != "sleep" && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(1ms);
  EXPECT_EQ(dumped(other.pid()).copies, 0U);
}

TEST(process_dump, refuses_at_once_a_core_file_that_is_no_regular_file) {
  const std::string pipe = ::testing::TempDir() + "pinfold_core_" + std::to_string(::getpid());
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  child_process reader([&](line& talk) {
    ::alarm(60);  // ends it if it waits
    const auto refused = dump_core_file(pipe);
    return talk.send(!refused && refused.error() == errc::invalid_argument) ? 0 : 1;
  });
  EXPECT_EQ(reader.talk().receive<bool>(), true);
  ::unlink(pipe.c_str());
  EXPECT_EQ(dump_core_file("/dev/zero").error().code, errc::invalid_argument);
  EXPECT_EQ(dump_core_file(::testing::TempDir()).error().code, errc::invalid_argument);
}

TEST(process_dump, names_the_file_that_it_cannot_read) {
  child_process other([](line& talk) { return talk.receive<bool>() ? 0 : 1; });
  child_process reader([&](line& talk) {
    constexpr rlimit few{64, 64};
    ::setrlimit(RLIMIT_NOFILE, &few);
    std::vector<int> taken;
    for (int one = 0; (one = ::open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) taken.push_back(one);
    ::close(taken.back());  // which leaves a descriptor for the first file
    const auto refused = dump_process(other.pid());
    talk.send(!refused && refused.error().native == EMFILE &&
              std::string_view(refused.error().message) == "cannot read /proc/<pid>/maps");
    return 0;
  });
  EXPECT_EQ(reader.talk().receive<bool>(), true);
}

TEST(process_dump, says_what_is_missing_without_permission) {
  child_process child([](line& talk) {
    const auto before = ::geteuid();
    if (!become_nobody() || ::geteuid() == before) return 77;
    const auto refused = dump_process(getppid());
    talk.send(refused ? errc::closed : refused.error().code);
    talk.send(refused ? 0 : refused.error().native);
    return refused ? 1 : std::string_view(refused.error().message).find("PINFOLD_DUMP_SIGNAL") == std::string::npos;
  });
  const auto code = child.talk().receive<errc>();
  if (!code) GTEST_SKIP() << "this user cannot become another one";
  EXPECT_EQ(*code, errc::not_permitted);
  EXPECT_EQ(child.talk().receive<int>(), EACCES);
  EXPECT_EQ(child.reap(), 0);
}

}  // namespace
}  // namespace pinfold::testing::process_dump_test
