// SPDX-License-Identifier: BSD-3-Clause
// Memory that a hook takes out of userfaultfd's watch before the call unmaps it: it causes no event, so no thread waits
// for one (R35), and everything else is told as before (R30, R37).
#include "invalidation/early_unregister.hpp"
#include "monitors/self_test/self_test.hpp"
#include "monitors/userfaultfd/thread.hpp"
#include "support/fixtures/hooked.hpp"
#include "support/fixtures/local_fixture.hpp"
#include "support/fixtures/watched_pages.hpp"
#include "support/host/raw_calls.hpp"
#include "support/host/watchdog.hpp"
#include "support/processes/child_process.hpp"

#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <thread>

namespace pinfold::testing::early_unregister_test {
namespace {

using invalidation::source;
using monitors::only;
using monitors::sources;

constexpr sources by_hooks = only(source::hooks), by_userfaultfd = only(source::userfaultfd);

bool unmap(const mapped& memory, const range& pages) {
  return ::munmap(memory.at(pages.begin - memory.begin()), pages.size()) == 0;
}
bool unmap_inline(const range& pages) {
  return raw_call(SYS_munmap, reinterpret_cast<void*>(pages.begin), pages.size()) == 0;
}

class early_unregister : public hooked {
 protected:
  void SetUp() override {
    hooked::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    PINFOLD_NEED_MONITOR(in);
    if (!has_raw_calls) GTEST_SKIP() << "no system calls past libc on this architecture";
  }

  // Returns which monitors post a part of `memory` while `body` runs.
  template <class F>
  sources told_of(const range& memory, F&& body) {
    auto cursor = in.event_log.generation().load();
    EXPECT_TRUE(body());
    sources said = 0;
    range gone;
    for (source from{}; in.event_log.read(cursor, gone, from) != invalidation::read_status::nothing;)
      if (gone.overlaps(memory)) said |= only(from);
    return said;
  }

  // Watches for the test's time, since memory without registrations costs nothing.
  void watch(const range& memory) { ASSERT_TRUE(in.watch_for(memory)); }

  uffd_monitor in;
  watchdog guard{[] {}};
};

TEST_F(early_unregister, R35_munmap_posted_by_the_hooks_raises_no_userfaultfd_event) {
  mapped memory(64 * page);
  memory.touch();
  watch(memory.all());
  const auto part = memory.part(8 * page, 9 * page);
  EXPECT_EQ(told_of(part, [&] { return unmap(memory, part); }), by_hooks);
  const auto by_number = memory.part(16 * page, 24 * page);
  EXPECT_EQ(told_of(by_number, [&] { return ::syscall(SYS_munmap, by_number.begin, by_number.size()) == 0; }),
            by_hooks);
  EXPECT_EQ(told_of(memory.all(), [&] { return unmap(memory, memory.all()); }), by_hooks) << "with holes in it";
  memory.forget();
}

TEST_F(early_unregister, R30_neighbouring_pages_stay_watched) {
  mapped memory(16 * page);
  memory.touch();
  watch(memory.all());
  ASSERT_TRUE(unmap(memory, memory.part(4 * page, 8 * page)));
  for (const auto& beside : {memory.part(3 * page, 4 * page), memory.part(8 * page, 9 * page)})
    EXPECT_EQ(told_of(beside, [&] { return unmap_inline(beside); }), by_userfaultfd);
}

TEST_F(early_unregister, R30_memory_watched_again_is_reported_again) {
  for (int round = 0; round < 3; ++round) {
    const mapped memory(8 * page, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, PROT_READ | PROT_WRITE,
                        quiet_address);
    ASSERT_TRUE(memory.there());
    watch(memory.all());
    EXPECT_EQ(told_of(memory.all(), [&] { return unmap_inline(memory.part(0, page)); }), by_userfaultfd);
    EXPECT_EQ(told_of(memory.all(), [&] { return unmap(memory, memory.all()); }), by_hooks);
  }
}

TEST_F(early_unregister, R30_madvise_is_reported_by_hooks_and_userfaultfd) {
  const mapped memory(8 * page);
  memory.touch();
  watch(memory.all());
  EXPECT_EQ(told_of(memory.all(), [&] { return ::madvise(memory.at(), page, MADV_DONTNEED) == 0; }),
            by_hooks | by_userfaultfd);
  EXPECT_EQ(told_of(memory.all(), [&] { return ::madvise(memory.at(), page, MADV_DONTNEED) == 0; }),
            by_hooks | by_userfaultfd)
      << "and stays watched";
}

// A file's pages cannot leave in this way: the kernel has no missing-page faults for them.
TEST_F(early_unregister, R30_file_mapping_is_reported_by_hooks_and_userfaultfd) {
  const int file = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  mapped memory(2 * page, MAP_PRIVATE, file);
  ::close(file);
  ASSERT_TRUE(memory.there());
  if (!in.watch_for(memory.all())) GTEST_SKIP() << "no such mapping can be watched here";
  EXPECT_EQ(told_of(memory.all(), [&] { return unmap(memory, memory.all()); }), by_hooks | by_userfaultfd);
  memory.forget();
}

TEST_F(early_unregister, R33_self_test_memory_is_reported_by_hooks_and_userfaultfd) {
  mapped memory(page);
  const invalidation::monitor_set no_monitors({});
  watch(memory.all());
  const monitors::registered_memory watched(no_monitors, memory.all());
  EXPECT_EQ(told_of(memory.all(), [&] { return unmap(memory, memory.all()); }), by_hooks | by_userfaultfd);
  memory.forget();
}

/// A userfaultfd of the program's own.
class foreign {
 public:
  foreign() : uffd_(monitors::uffd::open().value()) {
    if (!watch(bell_.all())) throw std::runtime_error("no bell");
    thread_ = std::jthread([this] {
      for (bool rung = false; !rung;) {
        static_cast<void>(monitors::uffd::poll_events(uffd_.number));
        const auto seen = monitors::uffd::read_event(uffd_.number);
        rung = seen.gone == bell_.all();
        told_ += rung || seen.native != 0 ? 0 : 1;
      }
    });
  }
  foreign(const foreign&) = delete;
  foreign& operator=(const foreign&) = delete;
  ~foreign() {
    static_cast<void>(told());
    uffd_.close();
  }

  [[nodiscard]] bool watch(const range& pages) const {
    return monitors::uffd::start_watching(uffd_.number, pages) == 0;
  }
  [[nodiscard]] int number() const { return uffd_.number; }
  /// Returns how many events there were, and ends the thread: no more will be read.
  [[nodiscard]] int told() {
    if (!thread_.joinable()) return told_;
    ::madvise(bell_.at(), page, MADV_DONTNEED);
    thread_.join();
    return told_;
  }

 private:
  mapped bell_{page};
  monitors::uffd::descriptor uffd_;
  int told_ = 0;  // written by the thread while it runs
  std::jthread thread_;
};

TEST_F(early_unregister, R35_memory_watched_by_another_userfaultfd_stays_watched) {
  foreign other;
  mapped memory(8 * page);
  ASSERT_TRUE(other.watch(memory.part(4 * page, 6 * page)));
  watch(memory.part(0, page));
  EXPECT_EQ(told_of(memory.all(), [&] { return unmap(memory, memory.all()); }) & by_hooks, by_hooks);
  EXPECT_EQ(other.told(), 1);
  memory.forget();
}

// The number may mean another file by then.
TEST_F(early_unregister, R35_early_unregister_does_nothing_after_the_monitor_ended) {
  in.monitor.reset();
  foreign other;
  mapped memory(page);
  ASSERT_TRUE(other.watch(memory.all()));
  invalidation::early_unregister(memory.all());
  ASSERT_TRUE(unmap(memory, memory.all()));
  EXPECT_EQ(other.told(), 1) << "descriptor " << other.number();
  memory.forget();
}

// After a fork that the C library does not see, the child has its parent's descriptor.
TEST_F(early_unregister, R37_fork_child_unregisters_nothing_from_its_parents_userfaultfd) {
  mapped memory(4 * page);
  watch(memory.all());
  const long child = raw_call(SYS_fork, nullptr, 0);
  if (child == 0) {
    invalidation::early_unregister(memory.all());
    raw_call(SYS_exit_group, nullptr, 0);
  }
  ASSERT_GT(child, 0);
  ASSERT_EQ(::waitpid(static_cast<pid_t>(child), nullptr, 0), child);
  EXPECT_EQ(told_of(memory.all(), [&] { return unmap_inline(memory.all()); }), by_userfaultfd);
  memory.forget();
}

// Between the two calls of `leave`, a thread may touch a page that is not there yet: in a signal handler, even the
// thread that makes the calls, and in memory that munmap does not take in the end.
TEST(early_unregister_edge_cases, R35_thread_that_faults_on_a_page_being_unregistered_continues) {
  const watchdog guard([] {});
  auto opened = monitors::uffd::open();
  if (!opened) GTEST_SKIP() << describe(opened.error());
  auto& event_log = invalidation::event_log::here();
  auto& all = invalidation::registered_filter::here();
  monitors::uffd::reader reader(event_log, all, *opened);
  ASSERT_TRUE(reader.start());
  const mapped memory(8 * page);
  ASSERT_TRUE(all.prepare(memory.all()));
  all.add(memory.all());
  uffdio_register leaving{{memory.begin(), 8 * page}, UFFDIO_REGISTER_MODE_MISSING, 0};
  ASSERT_EQ(::ioctl(opened->number, UFFDIO_REGISTER, &leaving), 0);
  event_log_reader events(event_log);
  memory.touch();
  EXPECT_TRUE(events.ranges().empty()) << "that is no event";
  ASSERT_EQ(::madvise(memory.at(), page, MADV_DONTNEED), 0);
  EXPECT_TRUE(events.lost(memory.part(0, page))) << "and all is watched as before";
  all.remove(memory.all());
  ASSERT_EQ(monitors::uffd::stop_watching(opened->number, memory.all()), 0);
  reader.stop_reading();
  opened->close();
  reader.join();
  reader.give_back();
}

// Makes system calls of that number on the calling thread fail with `native` from here on.
bool make_fail(unsigned number, int native) {
  sock_filter program[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(native)),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter{.len = 4, .filter = program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, 2, &filter) == 0;
}

// Memory that has left the watch and is still mapped is unwatched; the next registration has it watched again.
TEST(early_unregister_edge_cases, R30_memory_of_a_failed_munmap_is_watched_again) {
  if (!has_raw_calls) GTEST_SKIP() << "no system calls past libc on this architecture";
  child_process child([](line&) {
    const auto device = std::make_shared<fake_device>();
    pinfold::cache<fake_registrar> cache(fake_registrar{device},
                                         {.monitor = monitor_choice::hooks | monitor_choice::userfaultfd});
    if (cache.monitors().starts_with("none")) return 77;
    const mapped memory(4 * page);
    memory.touch();
    if (!cache.acquire(memory.at(), 4 * page) || !cache.find(memory.at(), 4 * page)) return 1;
    if (!make_fail(SYS_munmap, ENOMEM)) return 77;
    if (::munmap(memory.at(), 4 * page) == 0 || errno != ENOMEM) return 2;
    if (cache.find(memory.at(), 4 * page)) return 3;
    if (!cache.acquire(memory.at(), 4 * page) || !cache.find(memory.at(), 4 * page)) return 4;
    if (raw_call(SYS_madvise, memory.at(), page, MADV_DONTNEED) != 0) return 5;
    if (cache.find(memory.at(), 4 * page)) return 6;
    std::_Exit(0);  // unmapping at the end would fail as well
  });
  const int status = child.finish();
  if (status == 77) GTEST_SKIP() << "no such monitors, or no filter";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace pinfold::testing::early_unregister_test
