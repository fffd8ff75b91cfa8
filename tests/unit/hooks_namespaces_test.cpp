// SPDX-License-Identifier: BSD-3-Clause
// Another libc in the process, in a namespace of its own (dlmopen): its functions are hooked, too.
#include "support/fixtures/code_changes.hpp"
#include "support/host/sanitized.hpp"

#include <algorithm>
#include <dlfcn.h>
#include <memory>
#include <sys/syscall.h>
#include <unistd.h>

namespace pinfold::testing::hooks_namespaces_test {
namespace {

constexpr std::size_t page = hooked_page;

class hooks_namespaces : public ::testing::Test {
 protected:
  void SetUp() override {
    if (sanitized) GTEST_SKIP() << "sanitizers do not know of dlmopen";
    if (auto made = hooks_here(); !made) GTEST_SKIP() << describe(made.error());
  }
};

/// libc once more, with data of its own.
class another_libc {
 public:
  another_libc() : handle_(::dlmopen(LM_ID_NEWLM, "libc.so.6", RTLD_NOW)) {
    EXPECT_NE(handle_, nullptr) << ::dlerror();
  }
  void close() { EXPECT_EQ(::dlclose(handle_), 0); }

  template <class F>
  [[nodiscard]] F* function(const char* name) const {
    return reinterpret_cast<F*>(::dlsym(handle_, name));
  }

 private:
  void* handle_;
};

void expect_both_are_seen(const another_libc& other) {
  const registered_pages memory(4);
  auto* const their_munmap = other.function<int(void*, std::size_t)>("munmap");
  auto* const their_syscall = other.function<long(long, ...)>("syscall");
  ASSERT_NE(their_munmap, &::munmap);
  const auto seen = [](auto&& body) { return posted(body); };
  EXPECT_TRUE(any_overlaps(seen([&] { their_munmap(memory.at(1), page); }), memory.pages(1, 2)));
  EXPECT_TRUE(
      any_overlaps(seen([&] { their_syscall(SYS_madvise, memory.at(2), page, MADV_DONTNEED); }), memory.pages(2, 3)));
  EXPECT_TRUE(any_overlaps(seen([&] { ::munmap(memory.at(3), page); }), memory.pages(3, 4)));
}

TEST_F(hooks_namespaces, R30_copy_of_libc_loaded_earlier_is_hooked) {
  run_in_child([] {
    const another_libc other;
    const auto ours = hooks_here();
    ASSERT_TRUE(ours) << describe(ours.error());
    expect_both_are_seen(other);
  });
}

TEST_F(hooks_namespaces, R30_copy_of_libc_loaded_later_invalidates_all_memory_and_is_hooked) {
  run_in_child([] {
    const auto ours = hooks_here();
    ASSERT_TRUE(ours);
    std::unique_ptr<another_libc> other;
    const auto seen = posted([&] { other = std::make_unique<another_libc>(); });
    EXPECT_TRUE(std::find(seen.begin(), seen.end(), everything) != seen.end()) << "it may unmap from now on";
    EXPECT_TRUE((*ours)->watch({page, 2 * page}));
    expect_both_are_seen(*other);
  });
}

TEST_F(hooks_namespaces, hooked_copy_of_libc_stays_loaded) {
  run_in_child([] {
    another_libc other;
    for (int i = 0; i < 3; ++i) {
      const auto ours = hooks_here();
      ASSERT_TRUE(ours);
      auto* const their_getpid = other.function<int()>("getpid");
      if (i == 1) other.close();
      EXPECT_EQ(their_getpid(), ::getpid());
      EXPECT_TRUE((*ours)->watch({page, 2 * page}));
    }
  });
}

TEST_F(hooks_namespaces, R53_watch_is_refused_with_more_copies_of_libc_than_can_be_hooked) {
  run_in_child([] {
    const auto ours = hooks_here();
    ASSERT_TRUE(ours);
    for (std::size_t i = 1; i < monitors::copies_of_libc; ++i) {
      const another_libc other;
      ASSERT_TRUE((*ours)->watch({page, 2 * page}));
      expect_both_are_seen(other);
    }
    const another_libc one_too_many;
    for (int i = 0; i < 2; ++i) {
      const auto kept = (*ours)->watch({page, 2 * page});
      ASSERT_FALSE(kept);
      EXPECT_STREQ(kept.error().message, "more copies of libc are loaded than can be hooked (dlmopen)");
    }
    EXPECT_FALSE(hooks_here());
  });
}

TEST_F(hooks_namespaces, R31_loading_other_libraries_posts_no_event) {
  run_in_child([] {
    const auto ours = hooks_here();
    ASSERT_TRUE(ours);
    EXPECT_TRUE(posted([] { EXPECT_NE(::dlopen("libBrokenLocale.so.1", RTLD_NOW), nullptr); }).empty());
    EXPECT_TRUE((*ours)->watch({page, 2 * page}));
  });
}

}  // namespace
}  // namespace pinfold::testing::hooks_namespaces_test
