// SPDX-License-Identifier: BSD-3-Clause
// That nobody waits for ever for the userfaultfd monitor: in any order of its end and the program's (R35, R37).
#include "support/child_process.hpp"
#include "support/watchdog.hpp"
#include "support/watched_pages.hpp"

#include <array>
#include <csignal>
#include <cstdlib>
#include <latch>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>

namespace pinfold::testing {
namespace {

constexpr std::size_t bytes = 16 * page;

/// Threads that do nothing but map, watch and unmap, while it lives.
class unmapping_threads {
 public:
  explicit unmapping_threads(uffd_monitor& in, int count = 4) {
    for (int i = 0; i < count; ++i)
      threads_.emplace_back([this, &in](const std::stop_token& stop) {
        while (!stop.stop_requested()) {
          const mapped memory(bytes);
          if (watching_.load()) static_cast<void>(in->watch(memory.all()));
          rounds_.fetch_add(1);
        }
      });
  }
  void wait_for(int rounds) {
    for (const int until = rounds_.load() + rounds; rounds_.load() < until;) ::sched_yield();
  }
  void watch_no_more() {
    watching_.store(false);
    wait_for(64);  // more than may have been about to
  }

 private:
  std::atomic<int> rounds_{0};
  std::atomic<bool> watching_{true};
  std::vector<std::jthread> threads_;
};

class userfaultfd_life : public ::testing::Test {
 protected:
  void SetUp() override { PINFOLD_NEED_MONITOR(in); }

  uffd_monitor in;
  watchdog guard{std::chrono::seconds(40), [] {}};
};

// Many mappings, watched, that threads unmap while the monitor ends.
TEST_F(userfaultfd_life, R35_ends_while_watched_memory_is_unmapped) {
  for (int round = 0; round < 20; ++round) {
    std::atomic<bool> go{false};
    std::latch watched(4);
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&] {
        std::vector<std::unique_ptr<mapped>> all(64);
        for (auto& one : all) {
          one = std::make_unique<mapped>(bytes);
          EXPECT_TRUE(in->watch(one->all()));
        }
        watched.count_down();
        go.wait(false);
        all.clear();
      });
    unmapping_threads noise(in, 1);
    noise.wait_for(100);
    noise.watch_no_more();
    watched.wait();
    go.store(true);
    go.notify_all();
    in.monitor.reset();
    threads.clear();
    in.monitor = in.make();
    ASSERT_TRUE(in.monitor) << describe(in.refusal);
    guard.beat();
  }
}

/// A copy of this process that the C library knows nothing of: its handlers for forks do not run.
pid_t raw_fork() { return static_cast<pid_t>(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); }

// The thread may still be busy with it when it is told to end: it must not leave before it has read of its bell.
TEST_F(userfaultfd_life, R35_ends_right_after_an_event) {
  for (int round = 0; round < 500; ++round) {
    const mapped memory(bytes);
    ASSERT_TRUE(in->watch(memory.all()));
    ::madvise(memory.at(), page, MADV_DONTNEED);
    in.monitor.reset();
    in.monitor = in.make();
    ASSERT_TRUE(in.monitor) << describe(in.refusal);
    guard.beat();
  }
}

TEST_F(userfaultfd_life, R37_ends_though_a_child_keeps_its_descriptor) {
  mapped memory(bytes);
  mapped moved(bytes);
  ASSERT_TRUE(in->watch(memory.all()));
  ASSERT_TRUE(in->watch(moved.all()));
  mapped place(bytes);
  ASSERT_EQ(::mremap(moved.at(), bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place.at()), place.at());
  moved.forget();
  const pid_t child = raw_fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) ::pause();
  }
  in.monitor.reset();
  EXPECT_EQ(::munmap(memory.at(), page), 0);
  EXPECT_EQ(::munmap(place.at(), page), 0);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

TEST_F(userfaultfd_life, R37_forks_while_all_threads_unmap) {
  unmapping_threads threads(in);
  for (int i = 0; i < (sanitized ? 10 : 50); ++i) {
    child_process child([&](line&) {
      const mapped memory(bytes);
      return in->works() ? 1 : 0;
    });
    ASSERT_EQ(child.reap(), 0);
    threads.wait_for(4);
    guard.beat();
  }
  EXPECT_TRUE(in->works());
}

TEST_F(userfaultfd_life, R30_malloc_and_free_of_watched_blocks) {
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (std::size_t n = 0; n < 300; ++n) {
        const std::size_t size = page << ((n + i) % 11);
        std::vector<char> block(size);
        const auto begin = reinterpret_cast<std::uintptr_t>(block.data()) / page * page;
        EXPECT_TRUE(in->watch({begin, begin + size}));  // its heap, arena or mapping
        block.resize(2 * size);
      }
    });
  threads.clear();
  EXPECT_TRUE(in->works());
}

TEST_F(userfaultfd_life, R30_threads_end_whose_stacks_are_watched) {
  for (int i = 0; i < 50; ++i) {
    std::vector<std::jthread> threads;
    for (int k = 0; k < 4; ++k)
      threads.emplace_back([&] {
        volatile char here[16 * page] = {};
        const auto begin = reinterpret_cast<std::uintptr_t>(here) / page * page;
        EXPECT_TRUE(in->watch({begin, begin + 8 * page}));
      });
    threads.clear();
    guard.beat();
  }
  EXPECT_TRUE(in->works());
}

/// Unmapped by the program's end, long after the monitor or never.
struct unmapped_at_exit {
  std::unique_ptr<mapped> memory;
  ~unmapped_at_exit() { memory.reset(); }
};
unmapped_at_exit at_exit;
uffd_monitor* never_gone = nullptr;

int end_child(void (*end)()) {
  child_process child([end](line&) {
    static uffd_monitor in;  // destroyed before at_exit
    if (!in.monitor) return 2;
    at_exit.memory = std::make_unique<mapped>(bytes);
    if (!in->watch(at_exit.memory->all())) return 3;
    auto* const threads = new unmapping_threads(in);
    threads->wait_for(100);
    if (end == nullptr) return 0;
    end();
    return 4;
  });
  return child.reap();
}

// In children whose threads unmap watched memory all the time.
TEST_F(userfaultfd_life, R35_lets_the_program_end_in_every_way) {
  in.monitor.reset();
  EXPECT_EQ(end_child([] { ::_exit(0); }), 0);
  EXPECT_EQ(end_child([] { std::quick_exit(0); }), 0);
  EXPECT_EQ(end_child([] { ::execl("/bin/true", "true", nullptr); }), 0);
  EXPECT_EQ(end_child([] { ::abort(); }), -SIGABRT);
  EXPECT_EQ(end_child([] { ::kill(::getpid(), SIGKILL); }), -SIGKILL);
}

// The static objects' destructors: first the monitor goes, then memory that it watched, or the memory only.
TEST_F(userfaultfd_life, R35_lets_static_objects_unmap) {
  in.monitor.reset();
  for (const bool leaked : {false, true}) {
    child_process child([leaked](line&) -> int {
      auto own = std::make_unique<uffd_monitor>();
      if (!own->monitor) return 2;
      at_exit.memory = std::make_unique<mapped>(bytes);
      if (!(*own)->watch(at_exit.memory->all())) return 3;
      static std::unique_ptr<uffd_monitor> kept;
      if (leaked)
        never_gone = own.release();
      else
        kept = std::move(own);
      std::exit(0);
    });
    EXPECT_EQ(child.reap(), 0) << leaked;
  }
}

}  // namespace
}  // namespace pinfold::testing
