// SPDX-License-Identifier: BSD-3-Clause
// Two copies of pinfold in one process: one in the program, one in a library that the program loads (R38). Each test
// runs in a child, since the library stays loaded.
#include "monitors/selection/selection.hpp"
#include "os/file.hpp"
#include "os/message.hpp"
#include "support/fixtures/hooked.hpp"
#include "support/host/lingering.hpp"
#include "support/host/raw_calls.hpp"
#include "support/host/sanitized.hpp"
#include "support/host/ucm.hpp"
#include "support/processes/in_child.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <dlfcn.h>
#include <string>
#include <sys/socket.h>
#include <thread>

namespace pinfold::testing::two_copies_test {
namespace {

constexpr std::size_t page = hooked_page;

/// The library's copy, see `support/libraries/another_copy.cpp`.
class another_copy {
 public:
  explicit another_copy(monitor_choice choice) : library_(::dlopen(PINFOLD_ANOTHER_COPY, RTLD_NOW | RTLD_LOCAL)) {
    EXPECT_NE(library_, nullptr) << ::dlerror();
    std::array<char, 1000> text{};
    copy_ = call<void*(unsigned, char*, std::size_t)>("another_copy_start")(static_cast<unsigned>(choice), text.data(),
                                                                            text.size());
    text_ = text.data();
  }
  another_copy(const another_copy&) = delete;
  another_copy& operator=(const another_copy&) = delete;
  ~another_copy() { stop(); }

  void stop() {
    if (copy_ != nullptr) call<void(void*)>("another_copy_stop")(copy_);
    copy_ = nullptr;
  }
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] bool watch(const range& memory) const {
    return call<int(void*, std::uintptr_t, std::uintptr_t)>("another_copy_watch")(copy_, memory.begin, memory.end) == 1;
  }
  [[nodiscard]] std::string why() const { return call<const char*(void*)>("another_copy_why")(copy_); }
  [[nodiscard]] bool told() const { return call<int(void*)>("another_copy_told")(copy_) == 1; }

 private:
  template <class F>
  F* call(const char* name) const {
    return reinterpret_cast<F*>(::dlsym(library_, name));
  }

  void* library_;
  void* copy_ = nullptr;
  std::string text_;
};

class two_copies : public ::testing::Test {
 protected:
  void SetUp() override {
    if (sanitized) GTEST_SKIP() << "the sanitizer is in the program only";
    if (auto made = hooks_here(); !made) GTEST_SKIP() << describe(made.error());
  }
};

// Each copy contains code that enters the kernel by itself; the application answers for that code here.
constexpr monitor_choice only_hooks = monitor_choice::hooks | monitor_choice::manual;

/// Expects both copies to be told when a part of the memory goes by any of the calls.
void expect_both_are_told(const monitors::chosen& mine, const another_copy& theirs) {
  using call = void (*)(void*);
  constexpr std::array<call, 3> calls{
      [](void* at) { ::munmap(at, page); }, [](void* at) { ::madvise(at, page, MADV_DONTNEED); },
      [](void* at) { ::syscall(SYS_munmap, at, page); },  // its first instruction is too short for a jump
  };
  for (const auto& each : calls) {
    const registered_pages memory(4);
    EXPECT_TRUE(mine.set->watch(memory.pages(0, 4)));
    EXPECT_TRUE(theirs.watch(memory.pages(0, 4))) << theirs.why();
    const auto seen = posted([&] { each(memory.at(1)); });
    EXPECT_TRUE(any_overlaps(seen, memory.pages(1, 2)));
    EXPECT_TRUE(theirs.told());
  }
}

TEST_F(two_copies, R33_R38_hooks_of_both_copies_pass_the_self_test_and_get_events) {
  run_in_child([] {
    const auto mine = monitors::choose(only_hooks);
    ASSERT_TRUE(mine.keeps) << mine.text;
    const another_copy theirs(only_hooks);
    EXPECT_EQ(theirs.text(), "manual+hooks");
    expect_both_are_told(mine, theirs);
    expect_both_are_told(mine, theirs);  // neither copy puts its hooks on top of the other's again
    EXPECT_TRUE(mine.set->all().front()->works());
  });
}

TEST_F(two_copies, R38_hooks_of_either_copy_can_be_removed_first_and_installed_again) {
  for (const bool mine_first : {true, false}) {
    run_in_child([mine_first] {
      for (int i = 0; i < 20; ++i) {
        auto mine = monitors::choose(only_hooks);
        another_copy theirs(only_hooks);
        expect_both_are_told(mine, theirs);
        const registered_pages memory(2);
        if (mine_first) {
          mine = {};
          EXPECT_TRUE(theirs.watch(memory.pages(0, 2))) << theirs.why();
          EXPECT_TRUE(posted([&] { ::madvise(memory.at(), page, MADV_DONTNEED); }).empty());
          EXPECT_TRUE(theirs.told());
          mine = monitors::choose(only_hooks);
          expect_both_are_told(mine, theirs);
        } else {
          theirs.stop();
          EXPECT_TRUE(mine.set->watch(memory.pages(0, 2)));
          EXPECT_FALSE(posted([&] { ::madvise(memory.at(), page, MADV_DONTNEED); }).empty());
        }
      }
    });
  }
}

// UCX's hooks came first, and the library's table has UCX's dlopen, which did not find the dynamic linker for the
// library.
TEST_F(two_copies, R33_copy_loaded_after_ucm_passes_the_self_test) {
  if (!ucm_is_here()) GTEST_SKIP() << "libucm.so.0 is not installed (Debian: libucx0)";
  for (const auto mode : {ucm_mode::bistro, ucm_mode::reloc}) {
    run_in_child([mode] {
      ASSERT_TRUE(load_ucm(mode));
      for (int i = 0; i < 20; ++i) {
        const another_copy theirs(only_hooks);
        ASSERT_EQ(theirs.text(), "manual+hooks");
        const some_pages memory(2);
        EXPECT_TRUE(theirs.watch(memory.pages(0, 2))) << theirs.why();
        ::madvise(memory.at(), page, MADV_DONTNEED);
        EXPECT_TRUE(theirs.told());
      }
    });
  }
}

// The library's copy cannot watch memory that the program's userfaultfd watches. It can watch other memory, and proves
// that.
TEST_F(two_copies, R38_memory_watched_by_the_other_copys_userfaultfd_is_not_kept) {
  run_in_child([] {
    const auto mine = monitors::choose(monitor_choice::userfaultfd);
    if (!mine.keeps) return;
    const another_copy theirs(monitor_choice::userfaultfd);
    EXPECT_EQ(theirs.text(), "userfaultfd");
    const some_pages memory(4);
    EXPECT_TRUE(mine.set->watch(memory.pages(0, 4)));
    EXPECT_FALSE(theirs.watch(memory.pages(0, 4)));
    EXPECT_FALSE(theirs.told());
    void* const own = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(own, MAP_FAILED);
    EXPECT_TRUE(theirs.watch({address_of(own), address_of(own) + page}));
    ::munmap(own, page);
    EXPECT_TRUE(theirs.told());
  });
}

TEST_F(two_copies, R38_both_copies_install_and_remove_hooks_while_threads_call) {
  run_in_child([] {
    using clock = std::chrono::steady_clock;
    const auto until = clock::now() + std::chrono::seconds(1);
    std::thread mine([&] {
      while (clock::now() < until) {
        auto made = hooks_here();
        ASSERT_TRUE(made) << describe(made.error());
        const some_pages memory(1);
        const watched them(memory.at(), page);
        ASSERT_TRUE((*made)->watch(memory.pages(0, 1)));
        ASSERT_FALSE(posted([&] { ::madvise(memory.at(), page, MADV_DONTNEED); }).empty());
      }
    });
    std::thread theirs([&] {
      for (int done = 0; done <= 10 || clock::now() < until; ++done) {
        another_copy made(only_hooks);
        ASSERT_EQ(made.text(), "manual+hooks");
        const some_pages memory(1);
        ASSERT_TRUE(made.watch(memory.pages(0, 1))) << made.why();
        ::madvise(memory.at(), page, MADV_DONTNEED);
        ASSERT_TRUE(made.told());
      }
    });
    while (clock::now() < until) {
      void* const at = ::mmap(nullptr, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      ASSERT_EQ(::munmap(at, page), 0);
    }
    mine.join();
    theirs.join();
  });
}

/// Returns a socket whose close lasts.
int lingering() {
  std::array<int, 2> ends{-1, -1};
  const os::file sent(lingering_socket());
  const int number = sent.number();
  const std::byte body{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  EXPECT_EQ(os::send_message(ends[1], {&body, 1}, {&number, 1}, MSG_DONTWAIT), 0);
  return ends[0];
}

TEST_F(two_copies, library_stays_loaded_while_a_close_of_its_lasts) {
  run_in_child([] {
    void* const library = ::dlopen(PINFOLD_ANOTHER_COPY, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << ::dlerror();
    reinterpret_cast<void (*)(int)>(::dlsym(library, "another_copy_close"))(lingering());
    ASSERT_EQ(::dlclose(library), 0);
    EXPECT_NE(::dlopen(PINFOLD_ANOTHER_COPY, RTLD_NOW | RTLD_NOLOAD), nullptr) << "the thread returns into its code";
  });
}

}  // namespace
}  // namespace pinfold::testing::two_copies_test
