// SPDX-License-Identifier: BSD-3-Clause
// The events that the userfaultfd monitor sees (R30, R31).
#include "support/fixtures/userfaultfd_fixture.hpp"
#include "support/host/sanitized.hpp"

#include <csignal>
#include <fcntl.h>
#include <sched.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>

namespace pinfold::testing::userfaultfd_test {
namespace {

TEST_F(userfaultfd_monitor, reports_its_name_and_works) {
  EXPECT_STREQ(in->name(), "userfaultfd");
  EXPECT_TRUE(in->works());
}

TEST_F(userfaultfd_monitor, R30_sees_munmap_of_all_and_of_a_part) {
  mapped memory(8 * page);
  expect_seen(memory.all(), memory.part(page, 2 * page), [&] { return ::munmap(memory.at(page), page) == 0; });
  expect_seen(memory.part(2 * page, 8 * page), memory.part(7 * page, 8 * page),
              [&] { return ::munmap(memory.at(), 8 * page) == 0; });
  memory.forget();
}

TEST_F(userfaultfd_monitor, R30_events_name_exactly_the_discarded_pages) {
  mapped memory(8 * page);
  memory.touch();
  ASSERT_TRUE(in.watch_for(memory.all()));
  event_log_reader reader(in.event_log);
  ASSERT_EQ(::munmap(memory.at(2 * page), page), 0);
  ASSERT_EQ(::madvise(memory.at(4 * page), 2 * page, MADV_DONTNEED), 0);
  EXPECT_EQ(reader.ranges(), (std::vector{memory.part(2 * page, 3 * page), memory.part(4 * page, 6 * page)}));
  in.watched.remove(memory.all());
}

TEST_F(userfaultfd_monitor, R30_sees_mmap_over_watched_memory) {
  mapped memory(4 * page);
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  expect_seen(memory.all(), memory.all(),
              [&] { return ::mmap(memory.at(), 4 * page, PROT_READ, flags, -1, 0) != MAP_FAILED; });
}

TEST_F(userfaultfd_monitor, R30_sees_both_ends_of_mremap) {
  mapped from(4 * page);
  mapped to(4 * page);
  ASSERT_TRUE(in.watch_for(from.all()));
  ASSERT_TRUE(in.watch_for(to.all()));
  event_log_reader source(in.event_log);
  event_log_reader destination(in.event_log);
  ASSERT_EQ(::mremap(from.at(), 4 * page, 4 * page, MREMAP_MAYMOVE | MREMAP_FIXED, to.at()), to.at());
  EXPECT_TRUE(source.lost(from.all()));
  EXPECT_TRUE(destination.lost(to.all()));
  event_log_reader moved(in.event_log);
  ASSERT_EQ(::munmap(to.at(), page), 0);
  EXPECT_TRUE(moved.lost(to.part(0, page))) << "what was moved stays watched";
  from.forget();
  in.watched.remove(from.all());
  in.watched.remove(to.all());
}

TEST_F(userfaultfd_monitor, R30_sees_the_unwatched_destination_of_mremap) {
  mapped from(4 * page);
  mapped to(4 * page);
  ASSERT_TRUE(in.watch_for(from.all()));
  ASSERT_TRUE(in.watched.prepare(to.all()));
  in.watched.add(to.all());  // registered under another monitor's watch
  event_log_reader reader(in.event_log);
  ASSERT_EQ(::mremap(from.at(), 4 * page, 4 * page, MREMAP_MAYMOVE | MREMAP_FIXED, to.at()), to.at());
  EXPECT_TRUE(reader.lost(to.all()));
  from.forget();
  in.watched.remove(from.all());
  in.watched.remove(to.all());
}

TEST_F(userfaultfd_monitor, R30_sees_mremap_that_shrinks_or_leaves_the_range_mapped) {
  mapped memory(4 * page);
  expect_seen(memory.all(), memory.part(page, 4 * page),
              [&] { return ::mremap(memory.at(), 4 * page, page, 0) == memory.at(); });
  mapped left(4 * page);
  left.touch();
  void* moved = MAP_FAILED;
  expect_seen(left.all(), left.all(), [&] {
    moved = ::mremap(left.at(), 4 * page, 4 * page, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, nullptr);
    return moved != MAP_FAILED;
  });
  ::munmap(moved, 4 * page);
}

TEST_F(userfaultfd_monitor, R30_sees_advice_that_discards) {
  mapped memory(4 * page);
  memory.touch();
  for (const int advice : {MADV_DONTNEED, MADV_FREE, 24 /* MADV_DONTNEED_LOCKED */}) {
    SCOPED_TRACE(advice);
    expect_seen(memory.all(), memory.part(page, 2 * page),
                [&] { return ::madvise(memory.at(page), page, advice) == 0; });
  }
  mapped shared(4 * page, MAP_SHARED | MAP_ANONYMOUS);
  expect_seen(shared.all(), shared.part(0, page), [&] { return ::madvise(shared.at(), page, MADV_REMOVE) == 0; });
}

TEST_F(userfaultfd_monitor, R30_sees_inline_system_calls) {
#if defined(__x86_64__)
  mapped memory(4 * page);
  expect_seen(memory.all(), memory.all(), [&] {
    long result = SYS_munmap;
    __asm__ volatile("syscall" : "+a"(result) : "D"(memory.at()), "S"(4 * page) : "rcx", "r11", "memory");
    return result == 0;
  });
#else
  GTEST_SKIP() << "written for x86-64";
#endif
}

// The child has this process's memory, and this thread stands still until it ends, as with vfork. Here without libc.
TEST_F(userfaultfd_monitor, R30_sees_munmap_by_a_vfork_child) {
  if (thread_sanitized) GTEST_SKIP() << "ThreadSanitizer ends a child that has its parent's memory";
  mapped memory(4 * page);
  const mapped stack(16 * page);
  const auto unmap = [](void* at) { return static_cast<int>(::syscall(SYS_munmap, at, 4 * page)); };
  expect_seen(memory.all(), memory.all(), [&] {
    const pid_t child = ::clone(unmap, stack.at(16 * page), CLONE_VM | CLONE_VFORK | SIGCHLD, memory.at());
    int status = 1;
    return ::waitpid(child, &status, 0) == child && status == 0;
  });
  memory.forget();
}

TEST_F(userfaultfd_monitor, R30_sees_munmap_of_every_kind_of_memory) {
  const int memory_file = ::memfd_create("watched", MFD_CLOEXEC);
  const int file = ::open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  const int segment = ::shmget(IPC_PRIVATE, 4 * page, IPC_CREAT | 0600);
  ASSERT_EQ(::ftruncate(memory_file, 4 * page), 0);
  const auto unmapped = [&](const char* kind, mapped& memory) {
    SCOPED_TRACE(kind);
    ASSERT_TRUE(memory.there());
    expect_seen(memory.all(), memory.all(), [&] { return ::munmap(memory.at(), memory.all().size()) == 0; });
    memory.forget();
  };
  mapped shared(4 * page, MAP_SHARED, memory_file);
  unmapped("memfd, shared", shared);
  mapped copied(4 * page, MAP_PRIVATE, memory_file);
  unmapped("memfd, private", copied);
  if (file >= 0 && ::ftruncate(file, 4 * page) == 0) {
    mapped on_disk(4 * page, MAP_SHARED, file);
    unmapped("file, shared", on_disk);
    mapped from_disk(4 * page, MAP_PRIVATE, file);
    unmapped("file, private", from_disk);
  }
  void* const attached = ::shmat(segment, nullptr, 0);
  const range there{reinterpret_cast<std::uintptr_t>(attached), reinterpret_cast<std::uintptr_t>(attached) + page};
  expect_seen(there, there, [&] { return ::munmap(attached, 4 * page) == 0; });
  ::shmctl(segment, IPC_RMID, nullptr);
  ::close(file);
  ::close(memory_file);
}

TEST_F(userfaultfd_monitor, R30_sees_munmap_of_huge_pages) {
  constexpr std::size_t huge = std::size_t{2} << 20U;
  mapped memory(2 * huge, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | (21 << MAP_HUGE_SHIFT));
  if (!memory.there()) GTEST_SKIP() << "no huge pages are reserved (vm.nr_hugepages)";
  expect_seen(memory.part(0, huge), memory.part(0, huge), [&] { return ::munmap(memory.at(), huge) == 0; });
}

TEST_F(userfaultfd_monitor, R30_sees_discarded_pages_of_the_stack) {
  volatile char here[4 * page] = {};
  const auto begin = (reinterpret_cast<std::uintptr_t>(here) + page) / page * page;
  expect_seen({begin, begin + page}, {begin, begin + page},
              [&] { return ::madvise(reinterpret_cast<void*>(begin), page, MADV_DONTNEED) == 0; });
}

TEST_F(userfaultfd_monitor, R31_reports_nothing_of_unregistered_memory) {
  mapped memory(64 * page);
  ASSERT_TRUE(in->watch(memory.all()));  // but not added to in.watched
  event_log_reader reader(in.event_log);
  const auto before = in.event_log.generation().load();
  ASSERT_EQ(::munmap(memory.at(), page), 0);
  EXPECT_GT(in.event_log.generation().load(), before);
  EXPECT_TRUE(reader.ranges().empty());
}

}  // namespace
}  // namespace pinfold::testing::userfaultfd_test
