// SPDX-License-Identifier: BSD-3-Clause
// The files of statistics pages: whose they are, when they come and go, and what is said of processes that hang or
// died.
#include "observation/page_file.hpp"
#include "observation/process_identity.hpp"
#include "os/file.hpp"
#include "support/fixtures/forged_page.hpp"
#include "support/fixtures/local_fixture.hpp"
#include "support/fixtures/statistics_pages.hpp"
#include "support/host/sanitized.hpp"
#include "support/processes/child_process.hpp"
#include "support/processes/in_child.hpp"

#include <pinfold/observation/reader.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <memory>
#include <pthread.h>
#include <sched.h>
#include <set>
#include <string>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <vector>

namespace pinfold::testing::statistics_page_file_test {
namespace {

using namespace std::chrono_literals;
using observation::process_state;

constexpr std::uintptr_t base = 0x10000000;

struct statistics_page_file : ::testing::Test {
  std::string folder = page_folder::path();
};

cache_options publishing(const std::string& name) {
  cache_options made;
  made.name = name;
  made.publish_statistics = true;
  return made;
}

// Uses a cache, says so, and waits for an order.
int use_cache_and_wait(line& talk) {
  local_fixture f(publishing("child"));
  for (int i = 0; i < 10; ++i) f.touch(base, base + 0x1000);
  talk.send(static_cast<int>(f.cache.statistics().hits));
  static_cast<void>(talk.receive<int>());
  return ::testing::Test::HasFailure() ? 1 : 0;
}

TEST_F(statistics_page_file, is_there_only_if_asked_for) {
  run_in_child([] {
    local_fixture f;
    f.touch(base, base + 0x1000);
    EXPECT_FALSE(observation::find_page(page_folder::path(), ::getpid()));
  });
}

TEST_F(statistics_page_file, environment_turns_it_on_for_every_cache) {
  run_in_child([] {
    ::setenv("PINFOLD_STATS", "on", 1);
    cache_options plain;
    plain.name = "plain";
    local_fixture f(plain);
    f.touch(base, base + 0x1000);
    EXPECT_TRUE(published_now("plain"));
  });
}

TEST_F(statistics_page_file, relative_folder_is_below_the_first_working_directory) {
  run_in_child([this] {
    std::filesystem::current_path(folder);
    ::setenv("PINFOLD_STATS_DIR", "relative", 1);
    local_fixture first(publishing("first"));
    std::filesystem::current_path("/");
    local_fixture second(publishing("second"));
    EXPECT_EQ(observation::page_directory(), folder + "/relative");
    const auto path = observation::find_page(folder + "/relative", ::getpid());
    ASSERT_TRUE(path);
    const auto seen = observation::read_page(*path);
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->caches.size(), 2U);
  });
}

TEST_F(statistics_page_file, on_a_full_file_system_takes_no_more_caches_and_goes_on) {
  child_process child([](line&) {
    const auto full = page_folder::path();
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return 77;
    if (::mount("none", full.c_str(), "tmpfs", 0, "size=1m,mode=0700") != 0) return 77;
    const local_fixture first(publishing("first"));
    const os::file other(::open((full + "/other").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
    const std::array<char, 4096> block{};
    while (::write(other.number(), block.data(), block.size()) > 0) {
    }
    for (int i = 0; i < 3; ++i) {
      const local_fixture next(publishing("next"));
      const local_fixture more(publishing("more"));
    }
    return published_now("first") && !published_now("next") ? 0 : 1;
  });
  const int status = child.reap();
  if (status == 77) GTEST_SKIP() << "a mount is not permitted here";
  EXPECT_EQ(status, 0);
}

TEST_F(statistics_page_file, is_of_this_user_only) {
  run_in_child([] {
    ::umask(0);
    local_fixture f(publishing("private"));
    struct stat seen{};
    ASSERT_EQ(::stat(page_of().path.c_str(), &seen), 0);
    EXPECT_EQ(seen.st_mode & 07777U, 0600U);
    EXPECT_EQ(seen.st_uid, ::geteuid());
  });
}

TEST_F(statistics_page_file, is_removed_when_the_program_exits) {
  child_process child([](line& talk) {
    {
      local_fixture f(publishing("child"));
      f.touch(base, base + 0x1000);
    }
    talk.send(1);
    static_cast<void>(talk.receive<int>());
    std::exit(0);
    return 0;
  });
  ASSERT_TRUE(child.talk().receive<int>());
  EXPECT_EQ(page_of(child.pid()).state, process_state::running);
  const auto pid = child.pid();
  child.talk().send(1);
  EXPECT_EQ(child.reap(), 0);
  EXPECT_FALSE(observation::find_page(page_folder::path(), pid));
}

TEST_F(statistics_page_file, of_a_killed_process_stays_readable) {
  child_process child(use_cache_and_wait);
  const auto hits = child.talk().receive<int>();
  ASSERT_TRUE(hits);
  ASSERT_TRUE(published_now("child", child.pid()));
  EXPECT_TRUE(seems_to_run(child.pid()));
  child.kill();  // a zombie, for now
  EXPECT_EQ(page_of(child.pid()).state, process_state::ended);
  const auto pid = child.pid();
  child.reap();
  EXPECT_EQ(page_of(pid).state, process_state::ended);
  const auto seen = published("child", pid);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->counters.hits, static_cast<std::uint64_t>(*hits));
}

TEST_F(statistics_page_file, of_a_stopped_process_says_so) {
  child_process child(use_cache_and_wait);
  ASSERT_TRUE(child.talk().receive<int>());
  ASSERT_TRUE(published_now("child", child.pid()));
  child.stop();
  std::this_thread::sleep_for(700ms);
  const auto seen = page_of(child.pid());
  EXPECT_EQ(seen.state, process_state::stopped);
  EXPECT_GE(seen.since_published, 500ms);
  EXPECT_EQ(published("child", child.pid())->counters.hits, 9U);
  child.go_on();
  EXPECT_TRUE(published_now("child", child.pid()));
  EXPECT_TRUE(seems_to_run(child.pid()));
  child.talk().send(1);
  EXPECT_EQ(child.reap(), 0);
}

// The parent's page is not the child's: a cache of the child has a page of the child, and the parent's stays.
TEST_F(statistics_page_file, forked_child_has_its_own) {
  if (thread_sanitized) GTEST_SKIP() << "its runtime lets no child of a process with threads have threads";
  run_in_child([] {
    local_fixture parents(publishing("parent"));
    parents.touch(base, base + 0x1000);
    const auto before = published_now("parent");
    ASSERT_TRUE(before);
    child_process child([&](line& talk) {
      const bool refused = !parents.acquire(base, base + 0x1000).has_value();
      const bool none = !observation::find_page(page_folder::path(), ::getpid()).has_value();
      local_fixture mine(publishing("child"));
      mine.touch(base, base + 0x1000);
      const auto seen = published_now("child");
      const bool alone = !published("parent", ::getpid()).has_value();
      talk.send(refused && none && seen && alone);
      static_cast<void>(talk.receive<int>());
      if (sanitized) std::_Exit(0);  // for LeakSanitizer, a thread of the parent is a leak
      std::exit(0);
      return 0;
    });
    EXPECT_EQ(child.talk().receive<bool>(), std::optional(true));
    EXPECT_TRUE(published_now("parent"));
    child.talk().send(1);
    EXPECT_EQ(child.reap(), 0);
    EXPECT_TRUE(std::filesystem::exists(page_of().path));
    expect_counters_add_up(published_now("parent")->counters);
  });
}

// As a signal handler that interrupts a miss may do.
TEST_F(statistics_page_file, child_forked_within_a_miss_ends_the_miss_without_the_parents_page) {
  run_in_child([] {
    local_fixture f(publishing("parent"));
    f.touch(base, base + 0x1000);
    const auto first = ::getpid();
    pid_t child = -1;
    f.device->on_open = [&] { child = ::fork(); };
    const bool acquired = f.acquire(base + 0x10000, base + 0x11000).has_value();
    if (::getpid() != first) {
      f.device->on_open = [] {};
      static_cast<void>(f.acquire(base, base + 0x1000));
      std::_Exit(0);
    }
    EXPECT_TRUE(acquired);
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    const auto seen = published_now("parent");
    ASSERT_TRUE(seen);
    EXPECT_EQ(seen->counters.opens, 2U);
    std::uint64_t misses = 0;
    for (const auto& one : seen->misses) misses += count(one);
    EXPECT_EQ(misses, 2U);
  });
}

// As an allocator's handler may, it maps memory in children, before the library's own handler runs there.
std::atomic<bool> maps_in_children{false};
std::array<std::byte*, 400> mapped_in_child{};
constexpr std::size_t mapped_bytes = 0x10000;
void map_in_child() {
  if (!maps_in_children.load(std::memory_order_seq_cst)) return;
  for (auto& at : mapped_in_child)
    at = static_cast<std::byte*>(
        ::mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}
[[gnu::constructor(101)]] void be_the_first_handler() { ::pthread_atfork(nullptr, nullptr, map_in_child); }

TEST_F(statistics_page_file, child_forked_within_a_miss_writes_to_no_memory_that_other_handlers_mapped) {
  run_in_child([] {
    local_fixture f(publishing("parent"));
    const auto first = ::getpid();
    pid_t child = -1;
    f.device->on_open = [&] {
      maps_in_children = true;
      child = ::fork();
    };
    f.touch(base, base + 0x1000);
    if (::getpid() != first) {
      const bool clean = std::ranges::all_of(mapped_in_child, [](const std::byte* at) {
        return std::all_of(at, at + mapped_bytes, [](std::byte one) { return one == std::byte{0}; });
      });
      std::_Exit(clean ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  });
}

TEST_F(statistics_page_file, of_another_copy_of_the_library_is_kept_where_no_descriptor_is_left) {
  run_in_child([] {
    auto first = observation::make_page_file().value();
    ASSERT_TRUE(observation::show(first));
    auto second = observation::make_page_file().value();
    const rlimit none{0, 0};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    ASSERT_TRUE(observation::show(second));
    EXPECT_NE(first.path, second.path);
    struct stat seen{};
    EXPECT_EQ(::stat(first.path.c_str(), &seen), 0);
    EXPECT_EQ(::stat(second.path.c_str(), &seen), 0);
    for (const auto* one : {&first, &second}) ::unlink(one->path.c_str());  // they have no header
  });
}

// The file was left by another program of the same process: exec(2) keeps its number and start time.
TEST_F(statistics_page_file, left_by_an_earlier_program_is_replaced) {
  run_in_child([] {
    {
      local_fixture f(publishing("first"));
      EXPECT_TRUE(published("first"));
    }
    const auto path = page_of().path;
    ASSERT_TRUE(path.ends_with(".0"));
    child_process child([&](line& talk) {
      static_cast<void>(talk.receive<int>());
      local_fixture f(publishing("second"));
      const auto mine = page_of();
      talk.send(mine.path.ends_with(".0") && mine.caches.size() == 1);
      static_cast<void>(talk.receive<int>());
      return 0;
    });
    const auto start = observation::start_time_of(child.pid());
    ASSERT_TRUE(start);
    std::filesystem::copy_file(path, page_folder::path() + "/" + std::to_string(child.pid()) + "." +
                                         std::to_string(*start) + "." + std::to_string(observation::pid_namespace()) +
                                         ".0");
    child.talk().send(1);
    EXPECT_EQ(child.talk().receive<bool>(), std::optional(true));
    child.talk().send(1);
    EXPECT_EQ(child.reap(), 0);
  });
}

TEST_F(statistics_page_file, of_another_copy_of_the_library_that_spells_the_folder_differently_is_kept) {
  run_in_child([&] {
    auto first = observation::make_page_file();
    ASSERT_TRUE(first && observation::show(*first));
    ::setenv("PINFOLD_STATS_DIR", (folder + "/../" + folder.substr(folder.rfind('/') + 1)).c_str(), 1);
    auto second = observation::make_page_file();
    ASSERT_TRUE(second && observation::show(*second));
    EXPECT_TRUE(first->path.ends_with(".0") && second->path.ends_with(".1")) << second->path;
    for (const auto& one : {*first, *second}) ::unlink(one.path.c_str());
  });
}

TEST_F(statistics_page_file, of_copies_of_the_library_that_begin_at_once_are_all_kept) {
  run_in_child([] {
    constexpr int copies = 8;
    for (int round = 0; round < 20; ++round) {
      std::vector<observation::mapped_file> made(copies);
      std::atomic<int> ready{0};
      std::vector<std::thread> threads;
      for (auto& mine : made)
        threads.emplace_back([&mine, &ready] {
          ready.fetch_add(1, std::memory_order_seq_cst);
          while (ready.load(std::memory_order_seq_cst) < copies) std::this_thread::yield();
          auto fresh = observation::make_page_file();
          ASSERT_TRUE(fresh && observation::show(*fresh));
          mine = *fresh;
        });
      for (auto& one : threads) one.join();
      std::set<ino_t> files;
      for (const auto& one : made) {
        struct stat seen{};
        EXPECT_EQ(::stat(one.path.c_str(), &seen), 0) << one.path;
        files.insert(seen.st_ino);
        ::unlink(one.path.c_str());
        ::munmap(one.memory, observation::page_bytes);
      }
      EXPECT_EQ(files.size(), std::size_t{copies});
    }
  });
}

// PIDs are equal there, and start times in ticks often are, too.
TEST_F(statistics_page_file, of_processes_in_containers_that_share_the_folder_are_kept) {
  const auto contained = [](line& talk) {
    if (::unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) return talk.send(false), 0;
    talk.send(true);
    static_cast<void>(talk.receive<int>());
    const pid_t first = ::fork();
    if (first != 0) return ::waitpid(first, nullptr, 0) == first ? 0 : 1;
    ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr);
    if (::mount("proc", "/proc", "proc", 0, nullptr) != 0) std::_Exit(1);
    local_fixture f(publishing("contained"));
    talk.send(1);
    static_cast<void>(talk.receive<int>());
    std::_Exit(0);
  };
  std::vector<std::unique_ptr<child_process>> all(8);
  for (auto& one : all) {
    one = std::make_unique<child_process>(contained);
    if (one->talk().receive<bool>() != true) GTEST_SKIP() << "no container can be made here";
  }
  for (const auto& one : all) one->talk().send(1);
  for (const auto& one : all) ASSERT_TRUE(one->talk().receive<int>());
  const auto pages = observation::list_pages(folder);
  ASSERT_TRUE(pages);
  EXPECT_EQ(std::ranges::count_if(*pages, [](const auto& path) { return path.find("/1.") != std::string::npos; }), 8);
  for (const auto& one : all) one->talk().send(1);
}

TEST_F(statistics_page_file, folder_of_others_is_refused_and_the_cache_works) {
  run_in_child([] {
    const auto open = page_folder::path() + "/open";
    std::filesystem::create_directory(open);
    ::chmod(open.c_str(), 0777);
    ::setenv("PINFOLD_STATS_DIR", open.c_str(), 1);
    ::testing::internal::CaptureStderr();
    local_fixture f(publishing("refused"));
    const auto said = ::testing::internal::GetCapturedStderr();
    EXPECT_TRUE(said.starts_with("pinfold: no statistics page in " + open + ": not_permitted: ")) << said;
    f.touch(base, base + 0x1000);
    EXPECT_TRUE(std::filesystem::is_empty(open));
    f.expect_sound();
  });
}

TEST_F(statistics_page_file, link_as_folder_is_refused) {
  run_in_child([] {
    const auto real = page_folder::path() + "/real";
    const auto link = page_folder::path() + "/link";
    std::filesystem::create_directory(real);
    ::chmod(real.c_str(), 0700);
    std::filesystem::create_symlink(real, link);
    ::setenv("PINFOLD_STATS_DIR", link.c_str(), 1);
    local_fixture f(publishing("refused"));
    f.touch(base, base + 0x1000);
    EXPECT_TRUE(std::filesystem::is_empty(real));
  });
}

TEST_F(statistics_page_file, without_room_for_a_file_the_cache_works) {
  run_in_child([] {
    const rlimit small{4096, 4096};  // a larger file would make the kernel send SIGXFSZ
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    local_fixture f(publishing("no room"));
    f.touch(base, base + 0x1000);
    f.expect_sound();
    EXPECT_FALSE(observation::find_page(page_folder::path(), ::getpid()));
  });
}

TEST_F(statistics_page_file, of_long_ended_processes_are_removed) {
  child_process child(use_cache_and_wait);
  ASSERT_TRUE(child.talk().receive<int>());
  const auto path = page_of(child.pid()).path;
  child.kill();
  child.reap();
  run_in_child([&] {
    local_fixture f(publishing("next"));
    EXPECT_TRUE(std::filesystem::exists(path));  // an hour is left to look at it
  });
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  const std::uint64_t long_ago = 1;
  ASSERT_EQ(::pwrite(file, &long_ago, sizeof long_ago, offsetof(observation::page_header, published_at)), 8);
  ::close(file);
  const auto up = std::chrono::steady_clock::now().time_since_epoch();
  if (up < 1h) GTEST_SKIP() << "the machine runs for less than an hour";
  run_in_child([&] {
    local_fixture f(publishing("next"));
    EXPECT_FALSE(std::filesystem::exists(path));
  });
}

// Writes the header of a page of a process that ended, as it published for the last time so many ms ago.
std::string leave_page(const std::string& folder, int number, std::uint64_t ms) {
  forged_page left;
  left.header.pid = 4194304 + number;  // above the kernel's limit
  left.header.locked = 1;
  left.header.published_at -= ms * 1'000'000;
  auto path = folder + "/" + std::to_string(left.header.pid) + ".1.1.0";
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(&left.header), sizeof left.header);
  return path;
}

void empty_folder() {
  const auto all = observation::list_pages(page_folder::path());
  for (std::size_t i = 0; all && i < all->size(); ++i) std::filesystem::remove((*all)[i]);
}

TEST_F(statistics_page_file, of_ended_processes_are_removed_but_for_the_newest) {
  constexpr int kept = 64;
  empty_folder();
  std::vector<std::string> left;
  for (int i = 0; i < 2 * kept; ++i) left.push_back(leave_page(folder, i, 100 * static_cast<std::uint64_t>(i)));
  const os::file running(::open(left.back().c_str(), O_RDWR | O_CLOEXEC));
  forged_page page;
  page.header.locked = 1;
  page.header.published_at -= 60'000'000'000;
  ASSERT_EQ(::pwrite(running.number(), &page.header, sizeof page.header, 0), ssize_t{sizeof page.header});
  ASSERT_EQ(::flock(running.number(), LOCK_EX | LOCK_NB), 0);
  std::vector<std::unique_ptr<child_process>> children(8);
  for (auto& one : children) one = std::make_unique<child_process>(use_cache_and_wait);
  for (const auto& one : children) ASSERT_TRUE(one->talk().receive<int>());
  for (const auto& one : children) one->kill();
  for (int i = 0; i < 2 * kept; ++i) {
    const bool stays = i < kept || i == 2 * kept - 1;  // the last one's process runs
    EXPECT_EQ(std::filesystem::remove(left[static_cast<std::size_t>(i)]), stays) << i;
  }
}

TEST_F(statistics_page_file, of_very_many_ended_processes_are_removed_by_and_by) {
  empty_folder();
  constexpr int very_many = 1000;
  for (int i = 0; i < very_many; ++i) leave_page(folder, i, static_cast<std::uint64_t>(i));
  const auto count = [&] { return static_cast<int>(observation::list_pages(folder).value().size()); };
  run_in_child([] { const local_fixture f(publishing("first")); });
  EXPECT_GE(count(), very_many - (256 - 64)) << "one process does not look at all";
  for (int i = 0; i < 8; ++i) run_in_child([] { const local_fixture f(publishing("next")); });
  EXPECT_LE(count(), 64 + 1) << "and the page of the last child";
  empty_folder();
}

TEST_F(statistics_page_file, left_by_a_process_killed_while_it_made_one_is_removed_after_an_hour) {
  const auto name = [&](int number) { return folder + "/4194305.1.1.94112-" + std::to_string(number) + ".new"; };
  const auto make = [](const std::string& path) {
    ASSERT_GE(os::file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)).number(), 0);
  };
  const auto address = folder + "/127.0.0.1.new";
  const std::array<std::string, 4> files{name(0), name(2) + ".new", folder + "/thesis.new", address};
  const std::array<timespec, 2> old{timespec{::time(nullptr) - 3700, 0}, timespec{::time(nullptr) - 3700, 0}};
  for (const auto& one : files) {
    make(one);
    ASSERT_EQ(::utimensat(AT_FDCWD, one.c_str(), old.data(), 0), 0);
  }
  make(name(1));
  run_in_child([&] { const local_fixture f(publishing("next")); });
  EXPECT_FALSE(std::filesystem::exists(files[0]) || std::filesystem::exists(files[1]));
  EXPECT_TRUE(std::filesystem::exists(name(1)));
  EXPECT_TRUE(std::filesystem::remove(files[2]) && std::filesystem::remove(address)) << "they are the user's own";
}

TEST_F(statistics_page_file, no_reader_sees_one_that_is_being_made) {
  child_process maker([](line&) {
    while (!::testing::Test::HasFailure()) run_in_child([] { const local_fixture f(publishing("short")); });
    return 1;
  });
  int seen = 0;
  for (int looks = 0; maker.runs() && (looks < 1000 || seen < 10); ++looks) {
    const auto all = observation::list_pages(folder);
    for (std::size_t i = 0; all && i < all->size(); ++i) {
      const auto page = observation::read_page((*all)[i]);
      seen += page ? 1 : 0;
      EXPECT_TRUE(page || page.error().native == ENOENT) << describe(page.error());
    }
  }
  EXPECT_TRUE(maker.runs());
}

TEST_F(statistics_page_file, of_a_running_process_is_found_after_any_number_of_ended_ones_with_its_pid) {
  forged_page ended;
  ended.header.start_time = 1;
  std::vector<std::string> paths{ended.write(folder)};
  for (int i = 1; i < 100; ++i) {
    paths.push_back(paths[0].substr(0, paths[0].rfind('.') + 1) + std::to_string(i));
    std::filesystem::create_hard_link(paths[0], paths.back());
  }
  const auto last = observation::find_page(folder, ::getpid());
  paths.push_back(forged_page().write(folder));
  const auto running = observation::find_page(folder, ::getpid());
  ASSERT_TRUE(last && running);
  EXPECT_NE(*last, *running);
  EXPECT_EQ(*running, paths.back());
  for (const auto& one : paths) std::filesystem::remove(one);
}

TEST_F(statistics_page_file, strange_names_in_the_folder_are_no_pages) {
  for (const char* name : {"x", "1", "1.2.3", "1.2.3.4x", ".1.2.3.4", "-1.2.3.4", "99999999999.1.1.1", "0.1.1.1",
                           "1.2.3.4.5", "1.2.3.4.new"})
    std::filesystem::create_directory(page_folder::path() + "/" + name);
  const auto seen = observation::list_pages(page_folder::path());
  ASSERT_TRUE(seen);
  for (const auto& one : *seen) EXPECT_TRUE(std::filesystem::is_regular_file(one)) << one;
  const auto none = observation::list_pages(page_folder::path() + "/none");
  ASSERT_TRUE(none);
  EXPECT_TRUE(none->empty());
}

}  // namespace
}  // namespace pinfold::testing::statistics_page_file_test
