// SPDX-License-Identifier: BSD-3-Clause
// Plug-ins that own caches, loaded and unloaded in any order (R33, R38): one with a copy of pinfold inside, one with
// the shared library, in a program without pinfold. Real bytes are compared. Each test runs in a child, since hooks
// keep a library loaded.
#include "support/host/sanitized.hpp"
#include "support/host/settings.hpp"
#include "support/processes/in_child.hpp"

#include <pinfold/pinfold.h>

#include <array>
#include <atomic>
#include <cstring>
#include <dirent.h>
#include <dlfcn.h>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace pinfold::testing::plug_ins_test {
namespace {

constexpr std::array<const char*, 2> libraries{PINFOLD_STATIC_PLUG_IN, PINFOLD_SHARED_PLUG_IN};
constexpr std::size_t page = 4096;

/// A loaded plug-in, with a cache or without.
class plug_in {
 public:
  explicit plug_in(const char* path) : library_(::dlopen(path, RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) ADD_FAILURE() << ::dlerror();
  }
  plug_in(const plug_in&) = delete;
  plug_in& operator=(const plug_in&) = delete;
  ~plug_in() {
    stop();
    if (::dlclose(library_) != 0) ADD_FAILURE() << ::dlerror();
  }

  void start(std::uint32_t monitor) {
    cache_ = function<void*(std::uint32_t)>("plug_in_start")(monitor);
    ASSERT_NE(cache_, nullptr);
  }
  /// Starts with the cache that the library itself owns and ends.
  void start_global(std::uint32_t monitor) {
    cache_ = function<void*(std::uint32_t)>("plug_in_global")(monitor);
    ASSERT_NE(cache_, nullptr);
    global_ = true;
  }
  void stop() {
    if (cache_ != nullptr && !global_) function<void(void*)>("plug_in_stop")(cache_);
    cache_ = nullptr;
  }

  [[nodiscard]] bool started() const { return cache_ != nullptr; }
  [[nodiscard]] std::string monitors() const {
    std::array<char, 1000> text{};
    function<void(void*, char*, std::size_t)>("plug_in_monitors")(cache_, text.data(), text.size());
    return text.data();
  }
  [[nodiscard]] std::uint64_t hits() const { return function<std::uint64_t(void*)>("plug_in_hits")(cache_); }
  [[nodiscard]] int write(int file, const void* data, std::size_t bytes) const {
    return function<int(void*, int, const void*, unsigned)>("plug_in_write")(cache_, file, data,
                                                                             static_cast<unsigned>(bytes));
  }

 private:
  template <class F>
  F* function(const char* name) const {
    return reinterpret_cast<F*>(::dlsym(library_, name));
  }

  void* library_;
  void* cache_ = nullptr;
  bool global_ = false;
};

/// A few pages at one address, which are replaced by others.
class replaced_pages {
 public:
  replaced_pages() { map(0, nullptr); }
  ~replaced_pages() {
    ::munmap(at_, size);
    ::close(file_);
  }
  replaced_pages(const replaced_pages&) = delete;
  replaced_pages& operator=(const replaced_pages&) = delete;

  void replace(unsigned how) {
    switch (how % 3) {
      case 0: ::munmap(at_, size); return map_again();
      case 1: return map(MAP_FIXED, at_);
      default: ::madvise(at_, size, MADV_DONTNEED); return fill();
    }
  }
  /// Expects a write through the plug-in to give the file the bytes that are here now.
  void expect_fresh(const plug_in& by) const {
    ASSERT_EQ(by.write(file_, at_, size), static_cast<int>(size));
    std::array<char, size> got{};
    ASSERT_EQ(::pread(file_, got.data(), got.size(), 0), static_cast<ssize_t>(size));
    ASSERT_EQ(std::memcmp(got.data(), at_, size), 0) << "stale bytes";
  }

 private:
  static constexpr std::size_t size = 4 * page;

  static void* map_at(void* where, int flags) {
    return ::mmap(where, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
  }
  void map(int flags, void* where) {
    at_ = map_at(where, flags);
    ASSERT_NE(at_, MAP_FAILED);
    fill();
  }
  // Memory of another thread may lie there for a moment, or for good.
  void map_again() {
    constexpr int most_tries = 1000;
    for (int tries = 0; tries < most_tries; ++tries, std::this_thread::yield())
      if (map_at(at_, MAP_FIXED_NOREPLACE) == at_) return fill();
    map(0, nullptr);
  }
  void fill() { std::memset(at_, static_cast<int>(++content_), size); }

  void* at_ = nullptr;
  unsigned content_ = 0;
  int file_ = ::memfd_create("pinfold-test", MFD_CLOEXEC);
};

class plug_ins : public ::testing::Test {
 protected:
  void SetUp() override {
    if (sanitized) GTEST_SKIP() << "the sanitizer keeps libraries loaded, and is in the program only";
  }
};

/// A thread that maps and unmaps memory all the time, and calls the hooks that way.
class unmapping_thread {
 public:
  ~unmapping_thread() { stop_ = true; }

 private:
  std::atomic<bool> stop_ = false;
  std::jthread thread_{[this] {
    while (!stop_) ::munmap(::mmap(nullptr, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), page);
  }};
};

constexpr std::uint32_t hooks = PINFOLD_MONITOR_HOOKS | PINFOLD_MONITOR_MANUAL;  // answers for code of each copy's own

/// Takes one random step.
template <class Random>
void take_step(std::array<std::unique_ptr<plug_in>, 2>& loaded, replaced_pages& memory, Random& random) {
  const auto which = random() % 2;
  auto& one = loaded[which];
  if (!one) return void(one = std::make_unique<plug_in>(libraries[which]));
  switch (random() % 8) {
    case 0: return one.reset();
    case 1: return one->stop();
    case 2: return memory.replace(static_cast<unsigned>(random()));
    default:
      if (!one->started())
        one->start(random() % 2 == 0 ? hooks : static_cast<std::uint32_t>(PINFOLD_MONITOR_AUTOMATIC));
      if (one->started()) std::thread([&] { memory.expect_fresh(*one); }).join();
      if (one->started()) memory.expect_fresh(*one);
  }
}

void take_random_steps(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto until = std::chrono::steady_clock::now() + stress_time(3);
  int rounds = 0;
  const auto enough = [&] { return rounds > 5 && std::chrono::steady_clock::now() >= until; };
  for (; !enough() && !::testing::Test::HasFailure(); ++rounds) {
    std::array<std::unique_ptr<plug_in>, 2> loaded;
    replaced_pages memory;
    for (int i = 0; i < 20 && !::testing::Test::HasFailure(); ++i) take_step(loaded, memory, random);
  }
}

TEST_F(plug_ins, R33_R38_two_copies_with_hooks_load_and_unload_in_any_order) {
  run_in_child([] {
    const unmapping_thread beside;
    take_random_steps(test_seed());
  });
}

TEST_F(plug_ins, R33_R38_two_copies_with_hooks_load_and_unload_on_two_threads) {
  run_in_child([] {
    const unmapping_thread beside;
    std::jthread other([] { take_random_steps(test_seed() + 1); });
    take_random_steps(test_seed());
  });
}

TEST_F(plug_ins, keep_registrations_while_nothing_is_unmapped) {
  run_in_child([] {
    plug_in first(libraries[0]), second(libraries[1]);
    first.start(hooks);
    second.start(hooks);
    const replaced_pages memory;
    for (int i = 0; i < 10; ++i) {
      memory.expect_fresh(first);
      memory.expect_fresh(second);
    }
    EXPECT_EQ(first.hits() + second.hits(), 18U);
    EXPECT_EQ(first.monitors() + ' ' + second.monitors(), "manual+hooks manual+hooks");
  });
}

/// What a process has of what a plug-in could leave behind.
struct holdings {
  std::size_t descriptors, threads, mappings;
  long kilobytes;  ///< of its own: of files, such as the code of libraries, the kernel keeps as many pages as it likes
  bool operator==(const holdings&) const = default;
};

std::size_t entries_of(const char* path) {
  std::size_t count = 0;
  ::DIR* const folder = ::opendir(path);
  while (::readdir(folder) != nullptr) ++count;
  ::closedir(folder);
  return count;
}
holdings holdings_now() {
  std::ifstream maps("/proc/self/maps"), memory("/proc/self/statm");
  std::string line;
  std::size_t mappings = 0;
  while (std::getline(maps, line)) ++mappings;
  long all = 0, resident = 0, of_files = 0;
  memory >> all >> resident >> of_files;
  return {entries_of("/proc/self/fd"), entries_of("/proc/self/task"), mappings, (resident - of_files) * 4};
}

enum class owner { test, library };

void load_use_unload(const char* library, std::uint32_t monitor, owner of_cache) {
  plug_in one(library);
  of_cache == owner::library ? one.start_global(monitor) : one.start(monitor);
  const replaced_pages memory;
  memory.expect_fresh(one);
  std::thread([&] { memory.expect_fresh(one); }).join();
}

[[nodiscard]] bool is_loaded(const char* library) {
  void* const found = ::dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  return found != nullptr && ::dlclose(found) == 0;
}

/// On a thread that ends before: glibc keeps a library loaded that a thread has thread-local objects of.
void load_use_unload_on_a_thread(const char* library, std::uint32_t monitor) {
  plug_in one(library);
  std::thread([&] {
    one.start(monitor);
    const replaced_pages memory;
    memory.expect_fresh(one);
    one.stop();
  }).join();
}

TEST_F(plug_ins, library_really_goes_away_without_hooks) {
  for (const std::uint32_t monitor : {0U + PINFOLD_MONITOR_MANUAL, 0U + PINFOLD_MONITOR_USERFAULTFD})
    run_in_child([=] {
      for (const char* const library : libraries)
        for (int i = 0; i < 100; ++i) {
          load_use_unload_on_a_thread(library, monitor);
          ASSERT_FALSE(is_loaded(library)) << i;
        }
    });
}

bool has_grown(const holdings& before, const holdings& after) {
  return after.descriptors != before.descriptors || after.threads > before.threads ||
         after.mappings > before.mappings + 4 || after.kilobytes > before.kilobytes + 2000;
}

/// Loads and unloads each plug-in 1 000 times, or on a busy machine 100 times in ten seconds.
void expect_no_growth(std::uint32_t monitor, owner of_cache = owner::test) {
  run_in_child([=] {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    const auto load = [&](std::size_t most) {
      const auto enough = [&](std::size_t done) {
        return done >= most || (done >= most / 10 && std::chrono::steady_clock::now() >= until);
      };
      for (std::size_t i = 0; !enough(i) && !::testing::Test::HasFailure(); ++i)
        load_use_unload(libraries[i % 2], monitor, of_cache);
    };
    load(1000);  // counters of addresses and malloc's arenas grow for a while: 2.4 MB once
    auto before = holdings_now();
    load(2000);
    auto after = holdings_now();
    // What grows once, after the few times that a busy machine has loaded them, does not grow again.
    for (int tries = 0; tries < 4 && has_grown(before, after) && !::testing::Test::HasFailure(); ++tries) {
      before = after;
      load(2000);
      after = holdings_now();
    }
    EXPECT_EQ(after.descriptors, before.descriptors);
    EXPECT_LE(after.threads, before.threads);  // one that was joined may have been in /proc still
    EXPECT_LE(after.mappings, before.mappings + 4) << "malloc may have had a reason";
    EXPECT_LE(after.kilobytes, before.kilobytes + 2000);
  });
}

TEST_F(plug_ins, load_and_unload_1000_times_without_monitor) { expect_no_growth(PINFOLD_MONITOR_MANUAL); }
TEST_F(plug_ins, load_and_unload_1000_times_with_hooks) { expect_no_growth(hooks); }
TEST_F(plug_ins, load_and_unload_1000_times_with_userfaultfd) { expect_no_growth(PINFOLD_MONITOR_USERFAULTFD); }
TEST_F(plug_ins, load_and_unload_1000_times_with_caches_that_end_with_their_library) {
  expect_no_growth(PINFOLD_MONITOR_MANUAL, owner::library);
}
TEST_F(plug_ins, load_and_unload_1000_times_with_hooks_and_caches_that_end_with_their_library) {
  expect_no_growth(hooks, owner::library);
}
TEST_F(plug_ins, load_and_unload_1000_times_with_userfaultfd_and_caches_that_end_with_their_library) {
  expect_no_growth(PINFOLD_MONITOR_USERFAULTFD, owner::library);
}

}  // namespace
}  // namespace pinfold::testing::plug_ins_test
