// SPDX-License-Identifier: BSD-3-Clause
// Which processes the bpf monitor serves, how much it holds, and that it ends with its last user (R30, R35, R37).
// Skipped where the programs cannot be loaded.
#include "monitors/bpf/bpf.hpp"
#include "monitors/bpf/slots.hpp"
#include "monitors/selection/selection.hpp"
#include "support/fixtures/bpf_events.hpp"
#include "support/host/container_filter.hpp"
#include "support/host/privileges.hpp"
#include "support/host/refused_call.hpp"
#include "support/processes/child_process.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <fstream>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <vector>

namespace pinfold::testing::bpf_life_test {
namespace {

using invalidation::event_log;

TEST_F(bpf, R37_fork_child_causes_no_events_in_the_parent_and_reads_none) {
  memory at(bytes);
  events seen(*monitor);
  auto* const watching = monitor.get();
  child_process child([&](line& parent) {
    if (!open_bpf_descriptors().empty()) return 1;
    ::munmap(at.data(), bytes);
    ::madvise(at.data(), bytes, MADV_DONTNEED);
    parent.send(1);
    if (!parent.receive<int>()) return 2;
    if (watching->works()) return 3;
    if (watching->kernel_generation()->load() != 0 || watching->drained().load() != 0) return 4;
    watching->drain();
    return event_log::here().generation() == event_log::here().process() << 44U ? 0 : 5;
  });
  ASSERT_TRUE(child.talk().receive<int>());
  EXPECT_FALSE(seen.take_overlap(at.all()));
  at.unmap();
  EXPECT_TRUE(seen.take_cover(at.all()));
  child.talk().send(1);
  EXPECT_EQ(child.finish(), 0);
  EXPECT_TRUE(monitor->works());
}

TEST_F(bpf, R37_fork_child_can_load_its_own_monitor) {
  auto* const parents = monitor.release();
  child_process child([&](line&) {
    delete parents;
    auto own = load();
    if (!own) return 1;
    memory at(bytes);
    events seen(**own);
    at.unmap();
    return seen.take_cover(at.all()) ? 0 : 2;
  });
  EXPECT_EQ(child.reap(), 0);
  monitor.reset(parents);
  memory at(bytes);
  events seen(*monitor);
  at.unmap();
  EXPECT_TRUE(seen.take_cover(at.all())) << "the child has undone nothing of ours";
}

TEST_F(bpf, R35_ring_overflow_invalidates_all_memory) {
  memory at(bytes);
  events seen(*monitor);
  for (int i = 0; i < pinfold_records + 1; ++i) ::madvise(at.data(), page, MADV_DONTNEED);
  EXPECT_TRUE(seen.take_cover({0, UINTPTR_MAX}));
  for (int i = 0; i < pinfold_records - 1; ++i) ::madvise(at.data(), page, MADV_DONTNEED);
  const auto told = seen.take();
  EXPECT_EQ(told, std::vector<range>(pinfold_records - 1, {at.begin(), at.begin() + page})) << "not one is lost";
}

TEST_F(bpf, R35_concurrent_drains_lose_no_event) {
  memory at(bytes);
  std::atomic<bool> stop{false};
  std::atomic<int> missed{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      while (!stop) monitor->drain();
    });
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      memory mine(bytes);
      for (int round = 0; round < 20000; ++round) {
        const auto before = event_log::here().generation().load();
        ::madvise(mine.data(), page, MADV_DONTNEED);
        monitor->drain();
        if (event_log::here().generation().load() == before) ++missed;
      }
    });
  threads[2].join();
  threads[3].join();
  stop = true;
  threads.clear();
  EXPECT_EQ(missed, 0);
  EXPECT_EQ(monitor->drain(), monitor->drained());
}

TEST_F(bpf, R30_thread_that_observes_an_unmapping_reads_it_from_the_event_log) {
  constexpr std::uint64_t rounds = 200'000;
  memory at(bytes);
  std::atomic<std::uint64_t> done{0};
  const auto kernel = monitor->drain();
  const auto posted = event_log::here().generation().load();
  std::jthread unmaps([&] {
    for (std::uint64_t round = 1; round <= rounds; ++round) {
      ::madvise(at.data(), page, MADV_DONTNEED);
      done.store(round, std::memory_order_release);
    }
  });
  std::uint64_t looks = 0, missed = 0;
  for (std::uint64_t known = 0; known < rounds; ++looks) {
    known = done.load(std::memory_order_acquire);
    if (monitor->kernel_generation()->load(std::memory_order_acquire) < kernel + known) ++missed;
    const auto before = monitor->drained().load();
    monitor->drain();
    const bool at_once = monitor->drained().load() - before < pinfold_records;  // otherwise there is one post for all
    if (at_once && known != 0 && event_log::here().generation().load() == posted) ++missed;
    if (monitor->drained().load() < kernel + known) ++missed;
  }
  EXPECT_EQ(missed, 0U) << "of " << looks;
}

// The next process may get the same address for its address space.
TEST_F(bpf, slot_is_freed_when_its_address_space_ends) {
  auto places = monitors::bpf_slots::load();
  ASSERT_TRUE(places) << describe(places.error());
  for (const bool by_exec : {false, true}) {
    auto place = places->reserve();
    ASSERT_TRUE(place) << describe(place.error());
    child_process child([&](line& parent) {
      monitors::bpf_accept(place->secret);
      parent.send(1);
      parent.receive<int>();
      if (by_exec) ::execl("/bin/sleep", "sleep", "200", nullptr);
      return 0;
    });
    ASSERT_TRUE(child.talk().receive<int>());
    EXPECT_TRUE(places->is_taken(*place));
    places->release(*place);
    EXPECT_TRUE(places->is_taken(*place)) << "still by this address space";
    child.talk().send(1);
    if (!by_exec) child.reap();
    for (int i = 0; i < 3000 && places->is_taken(*place); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(places->is_taken(*place)) << by_exec;
  }
}

TEST_F(bpf, ring_of_an_ended_address_space_receives_no_events) {
  auto places = monitors::bpf_slots::load();
  ASSERT_TRUE(places) << describe(places.error());
  const auto place = places->reserve();
  ASSERT_TRUE(place) << describe(place.error());
  child_process user([&](line&) {
    monitors::bpf_accept(place->secret);
    return 0;
  });
  EXPECT_EQ(user.reap(), 0);
  for (int i = 0; i < 3000 && places->is_taken(*place); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto ring = monitors::bpf_ring::map(place->ring, place->first_generation);
  ASSERT_TRUE(ring);
  const auto last = ring->generation().load();
  EXPECT_GT(last, place->first_generation);
  for (int i = 0; i < 100; ++i) {  // some of these get the address of the first one's address space
    child_process next([&](line&) {
      const memory at(bytes);
      return 0;
    });
    EXPECT_EQ(next.reap(), 0);
  }
  EXPECT_EQ(ring->generation().load(), last);
}

TEST_F(bpf, exec_closes_all_bpf_descriptors) {
  child_process child([&](line&) {
    auto own = load();
    if (!own) return 1;
    ::execl("/bin/sh", "sh", "-c", "ls -l /proc/self/fd | grep -c anon_inode:.*bpf", nullptr);
    return 2;
  });
  EXPECT_EQ(child.reap(), 1) << "grep finds none";
}

TEST_F(bpf, R30_monitor_keeps_working_after_closefrom) {
  for (const bool reuse : {false, true}) {
    child_process child([reuse](line&) {
      auto own = load();
      if (!own) return 1;
      close_from_3(reuse);
      for (int round = 0; round < 10; ++round) {
        const memory at(bytes);
        events seen(**own);
        at.unmap();
        if (!seen.take_cover(at.all())) return 2;
      }
      if (!(*own)->works()) return 3;
      const auto programs = programs_of_this_process();
      if (programs.size() != monitors::bpf_link_count) return 4;
      own->reset();
      return !may_find_programs() || gone_soon(programs.front()) ? 0 : 5;
    });
    EXPECT_EQ(child.reap(), 0) << reuse;
  }
}

TEST_F(bpf, thread_of_the_monitor_holds_the_links_alone) {
  std::size_t held = 0;
  for (const auto& each : all_descriptors()) {
    std::string name;
    std::ifstream(each.thread / "comm") >> name;
    const bool is_link = each.what.starts_with("anon_inode:bpf");
    EXPECT_EQ(is_link, name == "pinfold-bpf") << name << ' ' << each.number << ": " << each.what;
    if (is_link) ++held;
  }
  EXPECT_EQ(held, monitors::bpf_link_count);
}

TEST_F(bpf, failure_to_start_the_thread_is_reported_and_leaves_nothing_open) {
  child_process child([](line&) {
    if (!refuse_call(SYS_close_range, EMFILE)) return 0;
    const auto own = load();
    if (own || own.error() != errc::out_of_resources || own.error().native != EMFILE) return 1;
    return open_bpf_descriptors().empty() ? 0 : 2;
  });
  EXPECT_EQ(child.reap(), 0);
}

TEST_F(bpf, programs_are_detached_with_the_last_monitor_while_a_child_lives) {
  if (!may_find_programs()) GTEST_SKIP() << "needs CAP_SYS_ADMIN to look programs up";
  auto programs = programs_of_this_process();
  ASSERT_EQ(programs.size(), monitors::bpf_link_count);
  for (const auto id : programs) EXPECT_TRUE(program_exists(id));
  child_process child([&](line& parent) { return parent.receive<int>() ? 1 : 0; });
  monitor.reset();
  for (const auto id : programs) EXPECT_TRUE(gone_soon(id)) << "while a child lives";
  EXPECT_EQ(child.finish(), 0);
}

TEST(bpf_without_privileges, loading_is_refused_as_not_permitted_or_unsupported) {
  child_process child([](line&) {
    if (::geteuid() != 0 || !become_nobody()) return 0;
    const auto made =
        monitors::make_bpf(event_log::here(), invalidation::registered_filter::here(), {.socket = "", .load = true});
    if (made) return 1;
    return made.error() == errc::not_permitted || made.error() == errc::unsupported ? 0 : 2;
  });
  EXPECT_EQ(child.reap(), 0);
}

TEST(bpf_without_privileges, missing_server_is_reported_as_unsupported) {
  const auto made = monitors::make_bpf(event_log::here(), invalidation::registered_filter::here(),
                                       {.socket = "/nowhere/pinfold", .load = false});
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error(), errc::unsupported);
}

TEST(bpf_without_privileges, failure_to_connect_to_the_named_server_is_reported) {
  for (const char* socket : {"/nowhere/pinfold", "@pinfold-test-without-listener"}) {
    child_process child([socket](line&) {
      if ((::geteuid() == 0 && !become_nobody()) || !refuse_calls(refused_by_docker())) return 0;
      ::setenv("PINFOLD_MONITORD", socket, 1);
      const auto says_it = [](const std::string& text) {
        std::fprintf(stderr, "%s\n", text.c_str());
        return text.find("cannot connect to the socket of pinfold monitord") != std::string::npos;
      };
      if (!says_it(monitors::choose(monitor_choice::bpf).text)) return 1;
      const auto automatic =
          monitors::choose(monitor_choice::automatic).text;  // includes bpf if hooks alone do not suffice
      return automatic.find("hooks alone: ") == std::string::npos || says_it(automatic) ? 0 : 2;
    });
    EXPECT_EQ(child.reap(), 0) << socket;
  }
}

}  // namespace
}  // namespace pinfold::testing::bpf_life_test
