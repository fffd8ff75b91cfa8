// SPDX-License-Identifier: BSD-3-Clause
// Events from everywhere: inside malloc, in signal handlers, while libraries are loaded and unloaded, around forks;
// with caches, and so monitors, that begin and end meanwhile. No thread may wait for ever (R35, R37).
#include "support/doubles/fake_registrar.hpp"
#include "support/host/process_limits.hpp"
#include "support/host/settings.hpp"
#include "support/host/watchdog.hpp"
#include "support/processes/child_process.hpp"

#include <pinfold/cache.hpp>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <dlfcn.h>
#include <malloc.h>
#include <memory>
#include <numeric>
#include <ostream>
#include <pthread.h>
#include <random>
#include <sys/mman.h>
#include <thread>
#include <vector>

namespace pinfold::testing::monitor_deadlock_stress_test {
namespace {

constexpr std::size_t bytes = 65536;

struct watched_by {
  const char* name;
  monitor_choice monitor;
  bool strict;
};
void PrintTo(const watched_by& one, std::ostream* to) { *to << one.name; }

using cache_type = pinfold::cache<fake_registrar>;

/// One cache that lives throughout, and a maker of short-lived ones.
class caches {
 public:
  explicit caches(const watched_by& who) : who_(who), lasting_(make()) {}

  [[nodiscard]] std::unique_ptr<cache_type> make() const {
    cache_options how;
    how.monitor = who_.monitor;
    how.strict = who_.strict;
    how.max_count = 64;
    return std::make_unique<cache_type>(fake_registrar{std::make_shared<fake_device>()}, how);
  }
  [[nodiscard]] cache_type& lasting() const { return *lasting_; }
  /// There is no lasting cache for a moment: then all monitors may end.
  void replace_lasting() { lasting_.reset(), lasting_ = make(); }

 private:
  const watched_by& who_;
  std::unique_ptr<cache_type> lasting_;
};

void hold_for_a_moment(cache_type& in, const void* at, std::size_t size) { static_cast<void>(in.acquire(at, size)); }

// The tasks, which each thread repeats.

void allocate(cache_type& in, std::mt19937_64& random) {
  std::array<void*, 8> all{};
  for (auto& one : all) {
    const auto size = std::size_t{4096} << random() % 10;
    one = std::malloc(size);
    if (one == nullptr) continue;
    hold_for_a_moment(in, one, size);
    if (random() % 4 == 0) one = std::realloc(one, size / 2 + 1);
  }
  for (void* const one : all) std::free(one);
  if (random() % 8 == 0) ::malloc_trim(0);
}

void map_and_unmap(cache_type& in, std::mt19937_64& random) {
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (at == MAP_FAILED) return;
  hold_for_a_moment(in, at, bytes);
  if (random() % 2 == 0) ::madvise(at, bytes, MADV_DONTNEED);
  hold_for_a_moment(in, at, bytes);
  ::munmap(at, bytes);
}

void run_short_thread(cache_type& in, std::mt19937_64&) {
  std::thread([&in] {
    std::array<char, 16384> own{};
    hold_for_a_moment(in, own.data(), own.size());
    void* const block = std::malloc(bytes);
    hold_for_a_moment(in, block, bytes);
    std::free(block);
  }).join();
}

void load_and_unload(cache_type& in, std::mt19937_64& random) {
  static constexpr std::array names{"libanl.so.1", "libBrokenLocale.so.1", "libnss_hesiod.so.2", "libutil.so.1",
                                    "libthread_db.so.1"};
  void* const library = ::dlopen(names.at(random() % names.size()), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return;
  hold_for_a_moment(in, library, 64);
  ::dlclose(library);
}

using task = void (*)(cache_type&, std::mt19937_64&);
constexpr std::array<task, 4> tasks{allocate, map_and_unmap, run_short_thread, load_and_unload};

// A handler that unmaps, as a collector's may, whatever the thread is doing: in the cache, in malloc, in a monitor.
std::atomic<unsigned long> handled{0};
void unmap_in_handler(int) {
  const int before = errno;
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at != MAP_FAILED) {
    ::madvise(at, bytes, MADV_DONTNEED);
    ::munmap(at, bytes);
  }
  handled.fetch_add(1);
  errno = before;
}

class signals {
 public:
  signals() {
    struct sigaction wanted{};
    wanted.sa_handler = unmap_in_handler;
    wanted.sa_flags = SA_RESTART;
    ::sigaction(SIGUSR1, &wanted, &before_);
  }
  signals(const signals&) = delete;
  signals& operator=(const signals&) = delete;
  ~signals() { ::sigaction(SIGUSR1, &before_, nullptr); }

 private:
  struct sigaction before_{};
};

class monitor_deadlock : public ::testing::TestWithParam<watched_by> {
 protected:
  void SetUp() override {
    if (const auto text = all_.lasting().monitors(); text.starts_with("none")) GTEST_SKIP() << text;
  }

  // Runs in a child: its inherited caches are closed, and it makes its own.
  int begin_anew() const {
    std::mt19937_64 random(1);
    const auto own = all_.make();
    for (int i = 0; i < 3; ++i) map_and_unmap(*own, random);
    return own->statistics().acquires > 0 ? 0 : 1;
  }

  void work(const std::stop_token& stop, std::size_t which) {
    std::mt19937_64 random(test_seed() + which);
    while (!stop.stop_requested()) {
      tasks.at((which + random()) % tasks.size())(all_.lasting(), random);
      if (which == 0 && random() % 16 == 0) {  // the caches of this thread begin and end
        const auto brief = all_.make();
        allocate(*brief, random);
        map_and_unmap(*brief, random);
      }
      done_.at(which).fetch_add(1);
    }
  }

  /// Beats when every thread has made progress. When one stands still, the watchdog ends the test.
  void beat_when_all_went_on() {
    bool all = true;
    for (std::size_t i = 0; i < threads; ++i) all = all && done_.at(i).load() > seen_.at(i);
    if (!all) return;
    for (std::size_t i = 0; i < threads; ++i) seen_.at(i) = done_.at(i).load();
    guard_.beat();
  }
  void report() const {
    for (std::size_t i = 0; i < threads; ++i) std::fprintf(stderr, "thread %zu: %lu\n", i, done_.at(i).load());
  }

  static constexpr std::size_t threads = 8;
  caches all_{GetParam()};
  std::array<std::atomic<unsigned long>, threads> done_{};
  std::array<unsigned long, threads> seen_{};
  watchdog guard_{[this] { report(); }};
};

TEST_P(monitor_deadlock, R35_R37_no_thread_deadlocks_with_the_monitors) {
  const signals handler;
  const auto until = std::chrono::steady_clock::now() + stress_time(2);
  int forks = 0;
  std::vector<std::jthread> all;
  for (std::size_t i = 0; i < threads; ++i) all.emplace_back([this, i](const std::stop_token& stop) { work(stop, i); });
  for (std::size_t round = 0; std::chrono::steady_clock::now() < until; ++round) {
    for (auto& one : all) ::pthread_kill(one.native_handle(), SIGUSR1);
    if (round % 16 == 0 && !sanitized) {
      child_process child([&](line&) { return begin_anew(); });
      EXPECT_EQ(child.reap(), 0) << "fork " << forks;
      ++forks;
    }
    beat_when_all_went_on();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  // The handlers may have taken all the time that the threads got; the watchdog limits this.
  const auto total = [&] { return std::accumulate(done_.begin(), done_.end(), 0UL); };
  while (total() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  for (auto& one : all) one.request_stop();
  all.clear();
  guard_.beat();
  std::printf("%lu tasks, %d forks, %lu signals\n", total(), forks, handled.load());
}

// The last cache ends, and the monitors with it, and another begins, while all the other threads unmap.
TEST_P(monitor_deadlock, R35_monitors_stop_and_start_while_threads_unmap) {
  const auto until = std::chrono::steady_clock::now() + stress_time(4);
  std::vector<std::jthread> all;
  for (std::size_t i = 0; i + 1 < threads; ++i)
    all.emplace_back([this, i](const std::stop_token& stop) {
      std::mt19937_64 random(test_seed() + i);
      while (!stop.stop_requested()) {
        const auto brief = all_.make();
        for (const task one : tasks) one(*brief, random);
        done_.at(i).fetch_add(1);
      }
    });
  int rounds = 0;
  for (; rounds == 0 || std::chrono::steady_clock::now() < until; ++rounds) {
    all_.replace_lasting();
    guard_.beat();
  }
  for (auto& one : all) one.request_stop();
  all.clear();
  std::printf("%d times\n", rounds);
}

INSTANTIATE_TEST_SUITE_P(by, monitor_deadlock,
                         ::testing::Values(watched_by{"hooks", monitor_choice::hooks | monitor_choice::manual, false},
                                           watched_by{"userfaultfd", monitor_choice::userfaultfd, false},
                                           watched_by{"bpf", monitor_choice::bpf, false},
                                           watched_by{"strict_automatic", monitor_choice::automatic, true}),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace pinfold::testing::monitor_deadlock_stress_test
