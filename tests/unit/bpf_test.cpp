// SPDX-License-Identifier: BSD-3-Clause
// The kernel programs put every event of this process on the event log before the system call that caused it returns
// (R30, R32, R35, R37). Skipped where the programs cannot be loaded.
#include "monitors/bpf/bpf.hpp"
#include "support/fixtures/bpf_events.hpp"
#include "support/hazards/memory_attacks.hpp"
#include "support/host/sanitized.hpp"
#include "support/processes/child_process.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <sched.h>
#include <string>
#include <sys/ioctl.h>
#include <thread>
#include <vector>

namespace pinfold::testing::bpf_test {
namespace {

TEST_F(bpf, R32_monitor_reports_its_name_and_works) {
  EXPECT_STREQ(monitor->name(), "bpf");
  EXPECT_TRUE(monitor->works());
  EXPECT_TRUE(monitor->watch({page, 2 * page}));
}

TEST_F(bpf, R30_events_name_exactly_the_unmapped_pages) {
  memory at(bytes);
  events seen(*monitor);
  ::munmap(at.data() + page, 2 * page);
  EXPECT_EQ(seen.take(), (std::vector<range>{{at.begin() + page, at.begin() + 3 * page}}));
  ::madvise(at.data() + 4 * page, page + 1, MADV_DONTNEED);
  EXPECT_EQ(seen.take(), (std::vector<range>{{at.begin() + 4 * page, at.begin() + 6 * page}})) << "rounded up";
}

TEST_F(bpf, R30_every_attack_on_anonymous_memory_is_reported) {
  for (const attack& each : attacks::all()) {
    if (std::string(each.name) == "discard in a child") continue;
    memory at(bytes);
    expect_reported(each, at);
  }
}

TEST_F(bpf, R30_every_attack_on_a_shared_file_is_reported) {
  for (const attack& each : attacks::all()) {
    memory at(bytes, memory::shared_file);
    expect_reported(each, at);
  }
}

// The oracle is a device that has registered the memory.
TEST_F(bpf, R30_every_attack_that_makes_a_registration_stale_is_reported) {
  int stale = 0;
  for (const auto kind : {memory::anonymous, memory::shared_file})
    for (const attack& each : attacks::all()) {
      const memory at(bytes, kind);
      events seen(*monitor);
      if (stale_after(each, at.as_target()) <= 0) continue;
      ++stale;
      EXPECT_TRUE(seen.take_overlap(at.all())) << each.name;
    }
  EXPECT_GT(stale, 15);
}

TEST_F(bpf, R30_harmless_calls_are_not_reported) {
  memory at(bytes);
  events seen(*monitor);
  ::mprotect(at.data(), bytes, PROT_NONE);
  ::mprotect(at.data(), bytes, PROT_READ | PROT_WRITE);
  for (const int advice : {MADV_NORMAL, MADV_WILLNEED, MADV_DONTFORK, MADV_DOFORK, MADV_HUGEPAGE, MADV_COLD})
    ::madvise(at.data(), bytes, advice);
  constexpr std::size_t far = std::size_t{1} << 20U;  // the kernel programs know the watched ranges only roughly
  auto* const other = ::mmap(nullptr, 2 * far, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_TRUE(seen.take().empty());
  ::munmap(static_cast<std::byte*>(other) + far, page);
  EXPECT_TRUE(seen.take().empty()) << "not registered";
}

TEST_F(bpf, R30_unknown_advice_is_reported_as_a_discard) {
  memory at(bytes);
  events seen(*monitor);
  ::madvise(at.data(), bytes, 77);
  EXPECT_EQ(seen.take(), std::vector<range>{at.all()});
}

TEST_F(bpf, R30_mremap_reports_source_and_destination) {
  memory from(bytes), onto(bytes);
  events seen(*monitor);
  ASSERT_NE(::mremap(from.data(), bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, onto.data()), MAP_FAILED);
  const auto told = seen.take();  // more than the memory where that may be of huge pages: at a multiple of 2 MiB
  ASSERT_EQ(told.size(), 2U);
  EXPECT_TRUE(told[0].begin == onto.begin() && told[0].contains(onto.all()));
  EXPECT_TRUE(told[1].begin == from.begin() && told[1].contains(from.all()));
  ASSERT_NE(::mremap(onto.data(), bytes, bytes - page, MREMAP_MAYMOVE), MAP_FAILED);
  EXPECT_TRUE(seen.take_cover({onto.begin() + bytes - page, onto.begin() + bytes}));
}

TEST_F(bpf, R30_shrinking_the_heap_is_reported) {
  void* const before = ::sbrk(0);
  ASSERT_NE(::sbrk(16 * page), reinterpret_cast<void*>(-1));
  const auto end = reinterpret_cast<std::uintptr_t>(::sbrk(0));
  const watched part({end - 4 * page, end});
  events seen(*monitor);
  ::sbrk(-static_cast<std::intptr_t>(4 * page));
  EXPECT_TRUE(seen.take_cover({end - 4 * page, end}));
  ::brk(before);
}

TEST_F(bpf, R30_replaced_and_detached_segments_are_reported) {
  const int segment = ::shmget(IPC_PRIVATE, bytes, 0600);
  auto* const attached = static_cast<std::byte*>(::shmat(segment, nullptr, 0));
  ASSERT_NE(attached, reinterpret_cast<std::byte*>(-1));
  const auto begin = reinterpret_cast<std::uintptr_t>(attached);
  const watched part({begin, begin + bytes});
  events seen(*monitor);
  EXPECT_EQ(::shmat(segment, attached, SHM_REMAP), attached);
  EXPECT_TRUE(seen.take_cover({begin, begin + bytes}));
  ::shmdt(attached);
  EXPECT_TRUE(seen.take_cover({begin, begin + bytes}));
  ::shmctl(segment, IPC_RMID, nullptr);
}

TEST_F(bpf, R30_process_madvise_on_the_own_process_is_reported) {
  memory at(bytes);
  const auto self = static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0));
  const iovec part{at.data(), bytes};
  events seen(*monitor);
  static_cast<void>(::syscall(SYS_process_madvise, self, &part, 1, MADV_DONTNEED, 0));
  EXPECT_TRUE(seen.take_cover(at.all()));
  ::close(self);
}

#if defined(__x86_64__)
long in_32_bit(long number, void* first, std::size_t second) {
  long outcome = number;
  asm volatile("int $0x80" : "+a"(outcome) : "b"(first), "c"(second) : "memory", "r8", "r9", "r10", "r11");
  return outcome;
}

/// A kernel may have them switched off (`ia32_emulation`): then the instruction raises a signal.
bool kernel_has_32_bit_calls() {
  constexpr long getpid_of_32_bit = 20;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(in_32_bit(getpid_of_32_bit, nullptr, 0) == ::getpid() ? 0 : 1);
  int status = 0;
  return ::waitpid(child, &status, 0) == child && status == 0;
}

TEST_F(bpf, R30_32_bit_system_calls_are_reported) {
  if (!kernel_has_32_bit_calls()) GTEST_SKIP() << "this kernel has no 32-bit system calls";
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT;
  void* const low = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, flags, -1, 0);
  const auto begin = reinterpret_cast<std::uintptr_t>(low);
  const watched part({begin, begin + page});
  events seen(*monitor);
  constexpr long munmap_of_32_bit = 91;
  ASSERT_EQ(in_32_bit(munmap_of_32_bit, low, page), 0);
  EXPECT_TRUE(seen.take_cover({begin, begin + page}));
}
#endif

TEST_F(bpf, R30_pages_that_go_by_another_mapping_of_their_file_are_reported) {
  memory at(bytes, memory::shared_file);
  void* const other = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, at.file(), 0);
  ASSERT_NE(other, MAP_FAILED);
  events seen(*monitor);
  ASSERT_EQ(::madvise(other, bytes, MADV_REMOVE), 0);
  EXPECT_TRUE(seen.take_cover(at.all()));
  ::munmap(other, bytes);
}

TEST_F(bpf, R30_hole_and_truncation_by_another_process_are_reported) {
  memory at(bytes, memory::shared_file);
  child_process other([&](line& parent) {
    while (const auto what = parent.receive<int>()) {
      int outcome = 0;
      if (*what == 0) outcome = ::fallocate(at.file(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, page);
      if (*what == 1) outcome = ::ftruncate(at.file(), 0);
      if (*what == 2) outcome = ::ftruncate(at.file(), bytes);
      if (*what == 3) outcome = ::madvise(at.data(), bytes, MADV_REMOVE);
      parent.send(outcome);
    }
    return 0;
  });
  for (int round = 0; round < 200; ++round)
    for (const int what : {0, 1, 2, 3}) {
      at.touch(what == 2 ? 0 : bytes, what != 2);
      events seen(*monitor);
      other.talk().send(what);
      ASSERT_EQ(other.talk().receive<int>(), 0);
      if (what == 2) continue;  // the memory grows
      ASSERT_TRUE(seen.take_cover(at.all())) << what << " in round " << round;
      if (what == 1) {
        other.talk().send(2);
        ASSERT_EQ(other.talk().receive<int>(), 0);
      }
    }
  EXPECT_EQ(other.finish(), 0);
}

TEST_F(bpf, R30_huge_pages_punched_by_another_process_are_reported) {
  constexpr std::size_t huge = std::size_t{2} << 20U;
  const int file = ::memfd_create("huge", MFD_CLOEXEC | MFD_HUGETLB);
  if (file < 0 || ::ftruncate(file, huge) != 0) GTEST_SKIP() << "no huge pages";
  void* const at = ::mmap(nullptr, huge, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (at == MAP_FAILED) GTEST_SKIP() << "no huge pages are reserved (vm.nr_hugepages)";
  static_cast<volatile char*>(at)[0] = 'A';
  const auto begin = reinterpret_cast<std::uintptr_t>(at);
  const auto punch = [&](line&) {
    return ::fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(huge));
  };
  const auto truncate = [&](line&) { return ::ftruncate(file, 0); };
  events seen(*monitor);
  EXPECT_EQ(child_process(punch).finish(), 0);
  EXPECT_TRUE(seen.take_cover({begin, begin + huge}));
  const auto unmapped = [](line&) {
    const int other = ::memfd_create("unmapped", MFD_CLOEXEC | MFD_HUGETLB);
    return ::ftruncate(other, static_cast<off_t>(huge)) == 0 ? ::ftruncate(other, 0) : 1;
  };
  EXPECT_EQ(child_process(unmapped).finish(), 0);
  EXPECT_TRUE(seen.take().empty()) << "not mapped";
  static_cast<volatile char*>(at)[0] = 'B';  // the hole has a page again
  EXPECT_EQ(child_process(truncate).finish(), 0);
  EXPECT_TRUE(seen.take_cover({begin, begin + huge}));
  ::munmap(at, huge);
  ::close(file);
}

// The kernel rounds the length up to the huge page. Here it may have none: the event comes before it looks.
TEST_F(bpf, R30_calls_that_take_whole_huge_pages_are_reported_with_these) {
  constexpr std::size_t huge = std::size_t{2} << 20U;
  constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  void* const room = ::mmap(nullptr, 3 * huge, PROT_NONE, flags, -1, 0);
  ASSERT_NE(room, MAP_FAILED);
  const auto begin = (reinterpret_cast<std::uintptr_t>(room) + huge - 1) & ~(huge - 1);
  void* const at = reinterpret_cast<void*>(begin);
  const watched part({begin, begin + huge});
  events seen(*monitor);
  [[maybe_unused]] const void* const placed = ::mmap(at, page, PROT_NONE, flags | MAP_FIXED | MAP_HUGETLB, -1, 0);
  EXPECT_TRUE(seen.take_cover({begin, begin + huge}));
  static_cast<void>(::mremap(at, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, reinterpret_cast<void*>(begin + huge)));
  EXPECT_TRUE(seen.take_cover({begin, begin + huge}));
  ::munmap(room, 3 * huge);
}

TEST_F(bpf, R30_open_with_truncation_of_the_registered_file_is_reported) {
  memory at(bytes, memory::shared_file);
  const auto path = "/proc/self/fd/" + std::to_string(at.file());
  events seen(*monitor);
  const int reader = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  EXPECT_FALSE(seen.take_overlap(at.all())) << "that is no reason";
  const int emptied = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_TRUNC);
  EXPECT_TRUE(seen.take_cover(at.all()));
  ::close(reader);
  ::close(emptied);
}

TEST_F(bpf, R30_holes_that_an_ioctl_makes_are_reported) {
  // The kernel's own, which are in no header for programs.
  struct space_resv {
    std::int16_t type;
    std::int16_t whence;
    std::int64_t begin;
    std::int64_t bytes;
    std::array<std::int32_t, 6> rest;
  };
  memory at(bytes, memory::shared_file);
  for (const auto request : {_IOW('X', 41, space_resv), _IOW('X', 43, space_resv), _IOW('X', 57, space_resv)}) {
    at.touch(bytes, true);
    events seen(*monitor);
    space_resv hole{};
    hole.bytes = bytes;
    const bool made = ::ioctl(at.file(), request, &hole) == 0;
    EXPECT_TRUE(made || errno == EOPNOTSUPP) << request << ": " << errno;
    EXPECT_TRUE(seen.take_cover(at.all())) << request;
  }
  events seen(*monitor);
  int waiting = 0;
  static_cast<void>(::ioctl(at.file(), FIONREAD, &waiting));
  EXPECT_FALSE(seen.take_overlap(at.all())) << "that is no reason";
}

TEST_F(bpf, R31_resizing_an_unmapped_memfd_is_not_reported) {
  const int file = ::memfd_create("unmapped", MFD_CLOEXEC);
  events seen(*monitor);
  for (const auto size : {bytes, page, bytes}) EXPECT_EQ(::ftruncate(file, static_cast<off_t>(size)), 0);
  EXPECT_TRUE(seen.take().empty());
  ::close(file);
}

TEST_F(bpf, R30_munmap_by_a_vfork_child_is_reported) {
  if (sanitized) GTEST_SKIP() << "ThreadSanitizer makes a fork of a vfork";
  alignas(16) static std::array<std::byte, 65536> stack;
  const memory at(bytes);
  events seen(*monitor);
  const auto unmap = [](void* what) { return static_cast<int>(::syscall(SYS_munmap, what, bytes)); };
  const pid_t child = ::clone(unmap, stack.data() + stack.size(), CLONE_VM | CLONE_VFORK | SIGCHLD, at.data());
  ASSERT_GT(child, 0);
  EXPECT_TRUE(seen.take_cover(at.all()));
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(monitor->works());
}

TEST_F(bpf, R30_munmap_by_another_thread_is_reported) {
  const memory at(bytes);
  events seen(*monitor);
  std::thread([&] { at.unmap(); }).join();
  EXPECT_TRUE(seen.take_cover(at.all()));
}

}  // namespace
}  // namespace pinfold::testing::bpf_test
