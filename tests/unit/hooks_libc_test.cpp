// SPDX-License-Identifier: BSD-3-Clause
// Memory that libc and the dynamic linker give back by themselves: no call of the program names the range (R30).
#include "monitors/self_test/self_test.hpp"
#include "support/fixtures/hooked.hpp"
#include "support/host/sanitized.hpp"
#include "support/processes/child_process.hpp"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <dlfcn.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <string>
#include <sys/syscall.h>
#include <thread>

namespace pinfold::testing::hooks_libc_test {
namespace {

constexpr std::size_t page = hooked_page;
constexpr std::size_t mib = std::size_t{1} << 20U;

class hooks_libc : public hooked {};

// A sanitizer has an allocator of its own, which gives memory back by its own system calls.
class hooks_malloc : public hooks_libc {
 protected:
  void SetUp() override {
    if (sanitized) GTEST_SKIP() << "the sanitizer's allocator is not libc's";
    hooks_libc::SetUp();
  }
};

range block(const void* at, std::size_t bytes) { return {address_of(at), address_of(at) + bytes}; }

void keep(void* at) { asm volatile("" : : "r"(at) : "memory"); }

TEST_F(hooks_malloc, R30_free_of_big_blocks_is_posted) {
  for (const std::size_t bytes : {64 * mib, 1024 * mib}) {
    void* const at = std::malloc(bytes);
    ASSERT_NE(at, nullptr);
    keep(at);
    const auto memory = block(at, bytes);
    const watched them(memory);
    const auto seen = posted([&] { std::free(at); });
    ASSERT_EQ(seen.size(), 1U);
    EXPECT_TRUE(seen.front().contains(memory));
  }
}

TEST_F(hooks_malloc, R30_free_of_aligned_blocks_is_posted) {
  void* at = nullptr;
  ASSERT_EQ(::posix_memalign(&at, mib, 64 * mib), 0);
  const auto memory = block(at, 64 * mib);
  const watched them(memory);
  const auto seen = posted([&] { std::free(at); });
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_TRUE(seen.front().contains(memory));
}

TEST_F(hooks_malloc, R30_realloc_that_moves_or_shrinks_is_posted) {
  void* at = std::malloc(64 * mib);
  ASSERT_NE(at, nullptr);
  keep(at);
  const auto resize = [&](std::size_t bytes) {
    void* const now = std::realloc(at, bytes);
    if (now != nullptr) at = now;
  };
  const watched them(at, 64 * mib);
  const auto tail = block(static_cast<std::byte*>(at) + 48 * mib, 16 * mib);
  auto seen = posted([&] { resize(32 * mib); });
  EXPECT_TRUE(any_overlaps(seen, tail));
  EXPECT_FALSE(any_overlaps(seen, block(at, 32 * mib)));
  const auto left = block(at, 32 * mib);
  seen = posted([&] { resize(1024 * mib); });
  EXPECT_TRUE(std::any_of(seen.begin(), seen.end(), [&](const range& one) { return one.contains(left); }));
  std::free(at);
}

TEST_F(hooks_malloc, R30_R31_trim_of_the_heap_is_posted) {
  std::vector<void*> blocks;
  for (int i = 0; i < 64; ++i) blocks.push_back(std::malloc(100 << 10));
  const auto begin = address_of(blocks.front());
  const auto end = address_of(blocks.back()) + (100 << 10);
  ASSERT_LT(begin, end);
  const watched them({begin, end});
  const auto seen = posted([&] {
    for (auto at = blocks.rbegin(); at != blocks.rend(); ++at) std::free(*at);
    ::malloc_trim(0);
  });
  EXPECT_TRUE(any_overlaps(seen, {begin + page, end - page}));
}

// A habit of the self-test: it must not pass where no monitor sees the trim.
TEST_F(hooks_malloc, R33_self_test_includes_a_trim_of_the_heap) {
  const auto habits = monitors::allocator_habits();
  const auto trim = std::find_if(habits.begin(), habits.end(), [](const auto& one) {
    return std::string(one.event) == "free at the end of the heap";
  });
  ASSERT_NE(trim, habits.end());
  const invalidation::monitor_set nothing({});
  monitors::sources seen = 0;
  EXPECT_EQ(trim->run(nothing, seen), monitors::outcome::gone);
  EXPECT_EQ(seen, monitors::only(invalidation::source::hooks));
  monitor_.reset();
  EXPECT_EQ(trim->run(nothing, seen), monitors::outcome::gone);
  EXPECT_EQ(seen, 0U);
}

TEST_F(hooks_malloc, R31_reuse_of_small_blocks_posts_no_event) {
  const auto seen = posted([] {
    for (int i = 0; i < 1000; ++i) {
      void* const at = std::malloc(64 << 10);
      const watched them(at, 64 << 10);
      std::free(at);
    }
  });
  EXPECT_TRUE(seen.empty());
}

TEST_F(hooks_malloc, R30_trim_of_a_threads_arena_is_posted) {
  std::vector<void*> blocks;
  range memory;
  const auto all = posted([&] {
    std::thread([&] {
      for (int i = 0; i < 1500; ++i) blocks.push_back(std::malloc(100 << 10));  // several heaps of 64 MiB
      std::sort(blocks.begin(), blocks.end());
      const auto from = blocks.size() / 2;
      memory = {address_of(blocks[from]), address_of(blocks[from]) + (100 << 10)};
      const watched them(memory);
      for (void* at : blocks) std::free(at);
      ::malloc_trim(0);
    }).join();
  });
  EXPECT_TRUE(any_overlaps(all, memory));
}

// glibc keeps the stack for the next thread but discards its pages, or gives the stack back.
TEST_F(hooks_libc, R30_stack_of_a_thread_that_ends_is_posted) {
  range stack;
  std::unique_ptr<watched> them;
  const auto seen = posted([&] {
    std::thread([&] {
      stack = block(static_cast<std::byte*>(__builtin_frame_address(0)) - 16 * page, page);
      them = std::make_unique<watched>(stack);
    }).join();
  });
  EXPECT_TRUE(any_overlaps(seen, stack));
}

TEST_F(hooks_libc, R30_stack_larger_than_glibcs_stack_cache_is_posted) {
  pthread_attr_t large;
  ASSERT_EQ(::pthread_attr_init(&large), 0);
  ASSERT_EQ(::pthread_attr_setstacksize(&large, 256 * mib), 0);
  static std::unique_ptr<watched> them;
  static range stack;
  const auto body = [](void*) -> void* {
    stack = block(__builtin_frame_address(0), 1);
    them = std::make_unique<watched>(stack);
    return nullptr;
  };
  const auto seen = posted([&] {
    pthread_t thread{};
    ASSERT_EQ(::pthread_create(&thread, &large, body, nullptr), 0);
    ::pthread_join(thread, nullptr);
  });
  EXPECT_TRUE(any_overlaps(seen, stack));
  them.reset();
  ::pthread_attr_destroy(&large);
}

void* some_library() {
  for (const char* name : {"libBrokenLocale.so.1", "libthread_db.so.1", "libanl.so.1", "libutil.so.1"}) {
    if (::dlopen(name, RTLD_LAZY | RTLD_NOLOAD) != nullptr) continue;
    if (void* const opened = ::dlopen(name, RTLD_LAZY)) return opened;
  }
  return nullptr;
}

TEST_F(hooks_libc, R30_dlclose_is_posted) {
  void* const library = some_library();
  if (library == nullptr) GTEST_SKIP() << "no library that is not loaded anyway";
  link_map* map = nullptr;
  ASSERT_EQ(::dlinfo(library, RTLD_DI_LINKMAP, static_cast<void*>(&map)), 0);
  const auto data = block(map->l_ld, 16);
  const watched them(data);
  EXPECT_TRUE(any_overlaps(posted([&] { ::dlclose(library); }), data));
}

// The linker maps a library's parts over a place that it has reserved, mostly that of the library unloaded last.
TEST_F(hooks_libc, R30_dlopen_over_registered_memory_is_posted) {
  const auto place = [](void* library) {
    link_map* map = nullptr;
    EXPECT_EQ(::dlinfo(library, RTLD_DI_LINKMAP, static_cast<void*>(&map)), 0);
    return range{map->l_addr, address_of(map->l_ld)};
  };
  void* library = some_library();
  if (library == nullptr) GTEST_SKIP() << "no library that is not loaded anyway";
  const auto before = place(library);
  ::dlclose(library);
  const watched them(before);
  const auto seen = posted([&] { library = some_library(); });
  if (place(library) != before) GTEST_SKIP() << "another place";
  EXPECT_TRUE(any_overlaps(seen, before));
  ::dlclose(library);
}

TEST_F(hooks_libc, loading_libraries_posts_no_event) {
  const auto seen = posted([] {
    for (int i = 0; i < 10; ++i)
      if (void* const library = some_library()) ::dlclose(library);
  });
  EXPECT_TRUE(seen.empty());
}

TEST_F(hooks_libc, R35_signal_handler_can_post_events) {
  static const some_pages* memory = nullptr;
  const some_pages mine(4);
  memory = &mine;
  const watched them(mine.at(), 4 * page);
  struct sigaction old{};
  struct sigaction ours{};
  ours.sa_handler = [](int) { ::madvise(memory->at(1), page, MADV_DONTNEED); };
  ASSERT_EQ(::sigaction(SIGUSR1, &ours, &old), 0);
  EXPECT_EQ(posted([] { ::raise(SIGUSR1); }), (std::vector<range>{mine.pages(1, 2)}));
  ::sigaction(SIGUSR1, &old, nullptr);
}

TEST_F(hooks_libc, R37_fork_child_posts_no_events_and_keeps_working) {
  const registered_pages memory(4);
  const auto seen = posted([&] {
    child_process child([&](line&) {
      if (::munmap(memory.at(), page) != 0) return 1;
      const auto* event_log = invalidation::event_log::if_there();
      if (event_log->generation().load() != 0) return 2;
      std::free(std::malloc(64 * mib));
      monitor_.reset();  // the parent's
      return ::munmap(memory.at(1), page) == 0 ? 0 : 3;
    });
    EXPECT_EQ(child.reap(), 0);
  });
  EXPECT_FALSE(any_overlaps(seen, memory.pages(0, 4)));
  EXPECT_EQ(posted([&] { ::munmap(memory.at(2), page); }), (std::vector<range>{memory.pages(2, 3)}));
}

TEST_F(hooks_libc, R37_fork_child_can_install_its_own_hooks) {
  const some_pages memory(8);
  child_process child([&](line&) {
    auto mine = hooks_here();
    if (!mine || !(*mine)->works()) return 1;
    const watched them(memory.at(), 8 * page);
    if (posted([&] { ::munmap(memory.at(1), page); }) != std::vector<range>{memory.pages(1, 2)}) return 2;
    monitor_.reset();  // the parent's: changes nothing here
    if (posted([&] { ::munmap(memory.at(2), page); }) != std::vector<range>{memory.pages(2, 3)}) return 3;
    mine->reset();
    if (!posted([&] { ::munmap(memory.at(3), page); }).empty()) return 4;
    return 0;
  });
  EXPECT_EQ(child.reap(), 0);
  const watched them(memory.at(), 8 * page);
  EXPECT_EQ(posted([&] { ::munmap(memory.at(1), page); }), (std::vector<range>{memory.pages(1, 2)}));
}

TEST_F(hooks_libc, R30_munmap_by_a_vfork_child_is_posted) {
  if (sanitized) GTEST_SKIP() << "sanitizers make a fork of vfork";
  const registered_pages memory(4);
  const auto seen = posted([&] {
    const auto child = ::vfork();  // NOLINT(bugprone-unsafe-functions): it is what is tested
    if (child == 0) {
      ::munmap(memory.at(1), page);
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
  });
  EXPECT_EQ(seen, (std::vector<range>{memory.pages(1, 2)}));
}

}  // namespace
}  // namespace pinfold::testing::hooks_libc_test
