// SPDX-License-Identifier: BSD-3-Clause
// What backs memory: recognised by identity and not by name (R30).
#include "os/backing.hpp"
#include "support/processes/child_process.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <fcntl.h>
#include <sched.h>
#include <string>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/shm.h>
#include <thread>
#include <unistd.h>

namespace pinfold::detail::backing_test {
namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t huge = std::size_t{2} << 20U;
constexpr int usable = PROT_READ | PROT_WRITE;

range at(const void* memory, std::size_t bytes = page) {
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  return {begin, begin + bytes};
}

TEST(backing, R30_private_anonymous_memory_is_the_processs_own) {
  void* const memory = ::mmap(nullptr, page, usable, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_EQ(backing_of(at(memory)), backing::own);
  ::munmap(memory, page);
}

TEST(backing, R30_shared_anonymous_memory_is_shared) {
  void* const memory = ::mmap(nullptr, page, usable, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  EXPECT_EQ(backing_of(at(memory)), backing::shared);
  ::munmap(memory, page);
}

// The kernel lists a segment's id as its inode, and the first segment of each IPC namespace has the id 0.
TEST(backing, R30_first_segment_of_an_ipc_namespace_is_shared) {
  testing::child_process child([](testing::line&) {
    if (::unshare(CLONE_NEWIPC) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWIPC) != 0) return 77;
    const int segment = ::shmget(IPC_PRIVATE, page, 0600);
    if (segment != 0) return 1;
    for (const int flags : {0, SHM_RDONLY}) {
      const void* const memory = ::shmat(segment, nullptr, flags);
      if (memory == reinterpret_cast<void*>(-1)) return 2;
      if (backing_of(at(memory)) != backing::shared) return 3;
    }
    return 0;
  });
  const int got = child.finish();
  if (got == 77) GTEST_SKIP() << "no IPC namespace to be had";
  EXPECT_EQ(got, 0);
}

TEST(backing, R30_private_memory_in_huge_pages_is_the_processs_own) {
  void* const memory = ::mmap(nullptr, huge, usable, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "no huge pages here";
  EXPECT_EQ(backing_of(at(memory, huge)), backing::own);
  ::munmap(memory, huge);
}

// The kernel lists a file that is the root of its mount, or lies at the root, by that name alone.
TEST(backing, R30_file_named_anon_hugepage_is_shared) {
  testing::child_process child([](testing::line&) {
    if (::unshare(CLONE_NEWNS) != 0 && ::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return 77;
    std::array<char, 32> folder{"/tmp/pinfold-backing-XXXXXX"};
    if (::mkdtemp(folder.data()) == nullptr) return 77;
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return 77;
    if (::mount("tmpfs", folder.data(), "tmpfs", 0, nullptr) != 0) return 77;
    const auto name = std::string(folder.data()) + "/anon_hugepage";
    const int file = ::open(name.c_str(), O_RDWR | O_CREAT, 0600);
    if (file < 0 || ::ftruncate(file, page) != 0) return 77;
    ::umount2(folder.data(), MNT_DETACH);  // now its path is "/anon_hugepage"
    ::rmdir(folder.data());
    const void* const memory = ::mmap(nullptr, page, usable, MAP_PRIVATE, file, 0);
    if (memory == MAP_FAILED) return 3;
    return backing_of(at(memory)) == backing::shared ? 0 : 4;
  });
  const int got = child.finish();
  if (got == 77) GTEST_SKIP() << "no mount namespace to be had";
  EXPECT_EQ(got, 0);
}

// The descriptor of the maps is that of the thread which opened it first.
TEST(backing, R30_shared_memory_is_seen_after_the_thread_that_opened_the_maps_has_ended) {
  testing::child_process child([](testing::line&) {
    std::thread([] { static_cast<void>(backing_of({page, 2 * page})); }).join();
    const void* const memory = ::mmap(nullptr, page, usable, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return backing_of(at(memory)) == backing::shared ? 0 : 1;
  });
  EXPECT_EQ(child.finish(), 0);
}

alignas(page) std::array<char, 2 * page> data{1};

TEST(backing, R30_data_of_the_program_and_of_libraries_is_program_data) {
  EXPECT_EQ(backing_of(at(data.data())), backing::program);
  const auto library = reinterpret_cast<std::uintptr_t>(&::shmget) / page * page;
  EXPECT_EQ(backing_of({library, library + page}), backing::program);
}

TEST(backing, R30_data_file_named_like_a_library_is_shared) {
  std::array<char, 40> name{"/tmp/pinfold-backing-XXXXXX.so.db"};
  const int file = ::mkstemps(name.data(), 6);
  ASSERT_GE(file, 0);
  ASSERT_EQ(::ftruncate(file, page), 0);
  void* const memory = ::mmap(nullptr, page, usable, MAP_PRIVATE, file, 0);
  ASSERT_NE(memory, MAP_FAILED);
  EXPECT_EQ(backing_of(at(memory)), backing::shared);
  ::munmap(memory, page);
  ::close(file);
  ::unlink(name.data());
}

}  // namespace
}  // namespace pinfold::detail::backing_test
