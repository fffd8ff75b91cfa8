// SPDX-License-Identifier: BSD-3-Clause
// Which range each call posts (R30), and that calls behave the same otherwise.
#include "support/fixtures/hooked.hpp"
#include "support/host/sanitized.hpp"

#include <cerrno>
#include <linux/mman.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

namespace pinfold::testing::hooks_test {
namespace {

constexpr std::size_t page = hooked_page;
constexpr int rw = PROT_READ | PROT_WRITE;
constexpr int anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
using ranges = std::vector<range>;

class hooks : public hooked {};

TEST_F(hooks, monitor_reports_its_name_and_works) {
  EXPECT_STREQ(monitor_->name(), "hooks");
  EXPECT_TRUE(monitor_->works());
  EXPECT_TRUE(monitor_->watch({page, 2 * page}));
}

TEST_F(hooks, R30_munmap_posts_whole_pages) {
  const registered_pages memory(8);
  EXPECT_EQ(posted([&] { EXPECT_EQ(::munmap(memory.at(1), page), 0); }), (ranges{memory.pages(1, 2)}));
  EXPECT_EQ(posted([&] { EXPECT_EQ(::munmap(memory.at(3), page + 1), 0); }), (ranges{memory.pages(3, 5)}));
}

TEST_F(hooks, event_is_posted_even_if_the_call_fails) {
  const registered_pages memory(2);
  EXPECT_EQ(posted([&] {
              errno = 0;
              EXPECT_EQ(::munmap(memory.at() + 1, page - 1), -1);
              EXPECT_EQ(errno, EINVAL);
            }),
            (ranges{memory.pages(0, 1)}));
}

TEST_F(hooks, R35_hooks_preserve_errno) {
  const registered_pages memory(2);
  errno = 1234;
  ::munmap(memory.at(), page);
  ::madvise(memory.at(1), page, MADV_DONTNEED);
  EXPECT_EQ(errno, 1234);
}

TEST_F(hooks, unregistered_memory_posts_no_event) {
  const some_pages memory(4);
  const auto before = invalidation::event_log::here().generation().load();
  EXPECT_EQ(::madvise(memory.at(), page, MADV_DONTNEED), 0);
  EXPECT_NE(::mmap(memory.at(1), page, rw, anonymous | MAP_FIXED, -1, 0), MAP_FAILED);
  EXPECT_EQ(::munmap(memory.at(), 4 * page), 0);
  EXPECT_EQ(invalidation::event_log::here().generation().load(), before);
}

TEST_F(hooks, R30_mmap_posts_an_event_only_with_map_fixed) {
  const registered_pages memory(8);
  void* got = nullptr;
  const auto map = [&](int flags) {
    return posted([&] { got = ::mmap(memory.at(2), page + 1, rw, anonymous | flags, -1, 0); });
  };
  EXPECT_EQ(map(MAP_FIXED), (ranges{memory.pages(2, 4)}));
  EXPECT_EQ(got, memory.at(2));
  EXPECT_EQ(map(MAP_FIXED_NOREPLACE), ranges{});
  EXPECT_EQ(got, MAP_FAILED);
  EXPECT_EQ(map(0), ranges{});
  EXPECT_NE(got, memory.at(2));
  ::munmap(got, 2 * page);
}

TEST_F(hooks, R30_mmap_of_huge_pages_posts_whole_huge_pages) {
  constexpr std::size_t huge = std::size_t{2} << 20U;
  void* const all = ::mmap(nullptr, 4 * huge, PROT_NONE, anonymous | MAP_NORESERVE, -1, 0);
  ASSERT_NE(all, MAP_FAILED);
  const auto begin = (address_of(all) + huge - 1) / huge * huge;
  const watched them({begin, begin + 2 * huge});
  void* got = nullptr;  // whether there are huge pages or not
  const auto seen = posted(
      [&] { got = ::mmap(reinterpret_cast<void*>(begin), page, rw, anonymous | MAP_FIXED | MAP_HUGETLB, -1, 0); });
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_TRUE(seen.front().contains({begin, begin + huge})) << got;
  ::munmap(all, 4 * huge);
}

TEST_F(hooks, R30_mremap_that_shrinks_posts_the_tail) {
  const registered_pages memory(8);
  EXPECT_EQ(posted([&] { EXPECT_EQ(::mremap(memory.at(), 4 * page, 2 * page, 0), memory.at()); }),
            (ranges{memory.pages(2, 4)}));
  EXPECT_EQ(posted([&] { EXPECT_EQ(::mremap(memory.at(4), 2 * page, page, MREMAP_MAYMOVE), memory.at(4)); }),
            (ranges{memory.pages(5, 6)}));
  EXPECT_EQ(posted([&] { EXPECT_EQ(::mremap(memory.at(6), page, page, MREMAP_MAYMOVE), memory.at(6)); }), ranges{});
}

TEST_F(hooks, R30_mremap_posts_source_and_destination) {
  const registered_pages memory(16);
  EXPECT_EQ(posted([&] {
              EXPECT_EQ(::mremap(memory.at(1), 2 * page, 2 * page, MREMAP_MAYMOVE | MREMAP_FIXED, memory.at(9)),
                        memory.at(9));
            }),
            (ranges{memory.pages(1, 3), memory.pages(9, 11)}));
}

TEST_F(hooks, R30_mremap_that_may_move_posts_the_old_range) {
  const registered_pages memory(8);
  void* moved = nullptr;
  EXPECT_EQ(posted([&] { moved = ::mremap(memory.at(1), page, 64 * page, MREMAP_MAYMOVE); }),
            (ranges{memory.pages(1, 2)}));
  ASSERT_NE(moved, MAP_FAILED);
  ::munmap(moved, 64 * page);
  EXPECT_EQ(posted([&] { EXPECT_EQ(::mremap(memory.at(3), page, 2 * page, 0), MAP_FAILED); }), ranges{});
  constexpr int dontunmap = 4;
  EXPECT_EQ(posted([&] { moved = ::mremap(memory.at(5), page, page, MREMAP_MAYMOVE | dontunmap); }),
            (ranges{memory.pages(5, 6)}));
  if (moved != MAP_FAILED) ::munmap(moved, page);
}

TEST_F(hooks, R30_madvise_posts_an_event_unless_the_advice_is_harmless) {
  const registered_pages memory(4);
  const ranges whole{memory.pages(0, 2)};
  for (const int advice : {MADV_DONTNEED, MADV_FREE, MADV_REMOVE, 24 /* DONTNEED_LOCKED */, 102 /* GUARD_INSTALL */,
                           103 /* GUARD_REMOVE */, MADV_MERGEABLE, MADV_UNMERGEABLE, 1000})
    EXPECT_EQ(posted([&] { ::madvise(memory.at(), page + 1, advice); }), whole) << advice;
  for (const int advice : {MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_DONTFORK, MADV_DOFORK,
                           MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_DONTDUMP, MADV_DODUMP, MADV_WIPEONFORK, MADV_KEEPONFORK,
                           MADV_COLD, MADV_PAGEOUT, MADV_POPULATE_READ, MADV_POPULATE_WRITE, MADV_COLLAPSE})
    EXPECT_EQ(posted([&] { ::madvise(memory.at(), page + 1, advice); }), ranges{}) << advice;
}

TEST_F(hooks, R30_posix_madvise_posts_an_event_only_for_linux_advice) {
  const registered_pages memory(4);
  memory.at()[0] = std::byte{7};
  EXPECT_EQ(posted([&] { EXPECT_EQ(::posix_madvise(memory.at(), page, POSIX_MADV_DONTNEED), 0); }), ranges{});
  EXPECT_EQ(memory.at()[0], std::byte{7}) << "as glibc does nothing";
  EXPECT_EQ(posted([&] { EXPECT_EQ(::posix_madvise(memory.at(1), page, MADV_FREE), 0); }),
            (ranges{memory.pages(1, 2)}));
}

#if defined(__GLIBC_PREREQ) && __GLIBC_PREREQ(2, 36)
TEST_F(hooks, R30_process_madvise_posts_each_range) {
  const registered_pages memory(64);
  const int self = static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0));
  ASSERT_GE(self, 0);
  std::vector<iovec> vector;
  ranges expected;
  for (std::size_t i = 0; i < 20; ++i) {  // more than the hook copies at a time
    vector.push_back({memory.at(2 * i), page});
    expected.push_back(memory.pages(2 * i, 2 * i + 1));
  }
  EXPECT_EQ(posted([&] { ::process_madvise(self, vector.data(), vector.size(), MADV_DONTNEED, 0); }), expected);
  EXPECT_EQ(posted([&] { ::process_madvise(self, vector.data(), vector.size(), MADV_COLD, 0); }), ranges{});
  void* const nothing = ::mmap(nullptr, page, PROT_NONE, anonymous, -1, 0);
  EXPECT_EQ(posted([&] {
              errno = 0;
              EXPECT_EQ(::process_madvise(self, static_cast<iovec*>(nothing), 2, MADV_DONTNEED, 0), -1);
              EXPECT_EQ(errno, EFAULT);
            }),
            (ranges{{0, UINTPTR_MAX}}));
  ::munmap(nothing, page);
  ::close(self);
}
#endif

TEST_F(hooks, R30_shrinking_the_heap_is_posted) {
  auto* const end = static_cast<std::byte*>(::sbrk(0));
  const auto begin = (address_of(end) + page - 1) / page * page;
  ASSERT_NE(::sbrk(static_cast<std::intptr_t>(begin + 8 * page - address_of(end))), reinterpret_cast<void*>(-1));
  const watched them({begin, begin + 8 * page});
  const range gone{begin + 6 * page, begin + 8 * page};
  EXPECT_EQ(posted([&] { EXPECT_NE(::sbrk(-static_cast<std::intptr_t>(2 * page)), reinterpret_cast<void*>(-1)); }),
            (ranges{gone, gone}))
      << "by sbrk, and by brk, which glibc's sbrk calls and another library's does not";
  EXPECT_EQ(posted([&] { EXPECT_EQ(::brk(reinterpret_cast<void*>(begin + 4 * page + 1)), 0); }),
            (ranges{{begin + 5 * page, begin + 6 * page}}));
  EXPECT_EQ(posted([&] {
              EXPECT_NE(::sbrk(0), nullptr);
              EXPECT_EQ(::brk(reinterpret_cast<void*>(begin + 8 * page)), 0);
              ::syscall(SYS_brk, 0);
            }),
            ranges{})
      << "nothing goes where it grows, or is asked";
  EXPECT_EQ(posted([&] { ::syscall(SYS_brk, begin + 7 * page); }), (ranges{{begin + 7 * page, begin + 8 * page}}));
  EXPECT_EQ(::brk(end), 0);
}

class segment {
 public:
  explicit segment(std::size_t bytes) : id_(::shmget(IPC_PRIVATE, bytes, IPC_CREAT | 0600)) {}
  segment(const segment&) = delete;
  segment& operator=(const segment&) = delete;
  ~segment() { ::shmctl(id_, IPC_RMID, nullptr); }
  [[nodiscard]] int id() const { return id_; }

 private:
  int id_;
};

TEST_F(hooks, R30_attached_and_detached_segments_are_posted) {
  const segment shared(3 * page - 1);
  if (shared.id() < 0) GTEST_SKIP() << "no System V memory here";
  const registered_pages memory(16);
  EXPECT_EQ(posted([&] { EXPECT_EQ(::shmat(shared.id(), memory.at(4), SHM_REMAP), memory.at(4)); }),
            (ranges{memory.pages(4, 7)}));
  EXPECT_EQ(posted([&] { EXPECT_EQ(::shmdt(memory.at(4)), 0); }), (ranges{memory.pages(4, 7)}));
  EXPECT_EQ(posted([&] { EXPECT_EQ(::shmat(shared.id(), memory.at(4), 0), memory.at(4)); }), ranges{});
  EXPECT_EQ(posted([&] { EXPECT_EQ(::shmdt(memory.at(4)), 0); }), (ranges{memory.pages(4, 7)}));
}

TEST_F(hooks, R30_shmdt_of_an_unknown_segment_posts_all_memory_behind_its_start) {
  const segment shared(3 * page);
  if (shared.id() < 0) GTEST_SKIP() << "no System V memory here";
  auto* const attached = ::shmat(shared.id(), nullptr, 0);
  ASSERT_NE(attached, reinterpret_cast<void*>(-1));
  const watched them(attached, 3 * page);
  const some_pages memory(2);
  ASSERT_EQ(::mremap(memory.at(), page, page, MREMAP_MAYMOVE), memory.at());  // a moved segment is possible from now on
  EXPECT_EQ(posted([&] { EXPECT_EQ(::shmdt(attached), 0); }), (ranges{{address_of(attached), UINTPTR_MAX}}));
}

TEST_F(hooks, R30_remap_file_pages_is_posted) {
  const some_pages memory(8, MAP_SHARED | MAP_ANONYMOUS);
  const watched them(memory.at(), 8 * page);
  EXPECT_EQ(posted([&] { ::remap_file_pages(memory.at(2), 2 * page, 0, 0, 0); }), (ranges{memory.pages(2, 4)}));
}

TEST_F(hooks, R30_calls_through_syscall_are_posted) {
  const registered_pages memory(32);
  const auto seen = [](auto... arguments) { return posted([&] { ::syscall(arguments...); }); };
  EXPECT_EQ(seen(SYS_madvise, memory.at(1), page, MADV_DONTNEED), (ranges{memory.pages(1, 2)}));
  EXPECT_EQ(seen(SYS_madvise, memory.at(1), page, MADV_WILLNEED), ranges{});
  EXPECT_EQ(seen(SYS_munmap, memory.at(2), page), (ranges{memory.pages(2, 3)}));
  EXPECT_EQ(seen(SYS_mmap, memory.at(3), page, rw, anonymous | MAP_FIXED, -1, 0), (ranges{memory.pages(3, 4)}));
  memory.at(3)[0] = std::byte{1};  // the sixth argument was passed on
  EXPECT_EQ(seen(SYS_mremap, memory.at(8), 2 * page, page, 0), (ranges{memory.pages(9, 10)}));
  EXPECT_EQ(seen(SYS_mremap, memory.at(8), page, page, MREMAP_MAYMOVE | MREMAP_FIXED, memory.at(12)),
            (ranges{memory.pages(8, 9), memory.pages(12, 13)}));
  EXPECT_EQ(seen(SYS_remap_file_pages, memory.at(14), page, 0, 0, 0), (ranges{memory.pages(14, 15)}));
  EXPECT_EQ(seen(SYS_getpid), ranges{});
  const iovec vector{memory.at(16), page};
  EXPECT_EQ(seen(SYS_process_madvise, -1, &vector, 1, MADV_DONTNEED, 0), (ranges{memory.pages(16, 17)}));
  const segment shared(page);
  if (shared.id() < 0) return;
  EXPECT_EQ(seen(SYS_shmat, shared.id(), memory.at(20), SHM_REMAP), (ranges{memory.pages(20, 21)}));
  EXPECT_EQ(seen(SYS_shmdt, memory.at(20)), (ranges{{address_of(memory.at(20)), UINTPTR_MAX}}));
}

TEST_F(hooks, results_and_errors_are_those_of_the_call) {
  EXPECT_EQ(::syscall(SYS_getpid), ::getpid());
  errno = 0;
  EXPECT_EQ(::syscall(SYS_close, -1), -1);
  EXPECT_EQ(errno, EBADF);
  errno = 0;
  EXPECT_EQ(::mmap(nullptr, 0, rw, anonymous, -1, 0), MAP_FAILED);
  EXPECT_EQ(errno, EINVAL);
  errno = 0;
  EXPECT_EQ(::shmdt(nullptr), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(::posix_madvise(reinterpret_cast<void*>(1), page, POSIX_MADV_NORMAL), EINVAL);
  void* const memory = ::mmap(nullptr, page, rw, anonymous, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  EXPECT_EQ(::munmap(memory, page), 0);
}

}  // namespace
}  // namespace pinfold::testing::hooks_test
