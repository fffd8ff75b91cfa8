// SPDX-License-Identifier: BSD-3-Clause
// The hooks beside UCX's (libucm), which is loaded before or after: it changes the same functions of libc, and shrinks
// the heap by a system call of its own (R30, R38). Each test runs in a child, since all of that stays.
#include "monitors/selection/selection.hpp"
#include "support/fixtures/code_changes.hpp"
#include "support/host/sanitized.hpp"
#include "support/host/ucm.hpp"

#include <malloc.h>
#include <unistd.h>

namespace pinfold::testing::hooks_ucm_test {
namespace {

constexpr std::size_t page = hooked_page;
constexpr std::size_t mib = std::size_t{1} << 20U;

class hooks_ucm : public ::testing::TestWithParam<ucm_mode> {
 protected:
  void SetUp() override {
    if (sanitized) GTEST_SKIP() << "the sanitizer's allocator is not libc's";
    if (auto made = hooks_here(); !made) GTEST_SKIP() << describe(made.error());
    if (!ucm_is_here()) GTEST_SKIP() << "libucm.so.0 is not installed (Debian: libucx0)";
  }
  void load() { ASSERT_TRUE(load_ucm(GetParam())); }
};

INSTANTIATE_TEST_SUITE_P(modes, hooks_ucm, ::testing::Values(ucm_mode::bistro, ucm_mode::reloc),
                         [](const auto& mode) { return mode.param == ucm_mode::bistro ? "bistro" : "reloc"; });

void expect_told_of_trim() {
  // A block at the top of the heap: its free shrinks the heap.
  ASSERT_EQ(::mallopt(M_MMAP_THRESHOLD, 32 * mib), 1);
  ASSERT_EQ(::mallopt(M_TRIM_THRESHOLD, 128 << 10), 1);
  auto* const block = static_cast<std::byte*>(std::malloc(8 * mib));
  ASSERT_NE(block, nullptr);
  const range memory{address_of(block) + mib, address_of(block) + 7 * mib};
  const auto top = address_of(::sbrk(0));
  ASSERT_GE(top, memory.end);
  const watched them(memory);
  const auto seen = posted([&] { std::free(block); });
  ASSERT_LT(address_of(::sbrk(0)), memory.end) << "the heap was not trimmed: this test shows nothing";
  EXPECT_TRUE(any_overlaps(seen, memory));
}

TEST_P(hooks_ucm, R30_heap_trim_is_reported_when_ucm_is_loaded_first) {
  run_in_child([this] {
    load();
    const auto ours = hooks_here();
    ASSERT_TRUE(ours) << describe(ours.error());
    expect_told_of_trim();
  });
}

// libucm's patch covers ours. Registrations kept until then are posted as gone when that is found out; later ones are
// watched again.
TEST_P(hooks_ucm, R30_R53_heap_trim_is_reported_when_ucm_is_loaded_later) {
  run_in_child([this] {
    const auto ours = hooks_here();
    ASSERT_TRUE(ours);
    const auto seen = posted([this] { load(); });
    const bool all = std::find(seen.begin(), seen.end(), everything) != seen.end();
    EXPECT_EQ(all, GetParam() == ucm_mode::bistro) << "bistro changes libc's code, reloc does not";
    EXPECT_TRUE((*ours)->watch({page, 2 * page}));
    EXPECT_TRUE((*ours)->works());
    expect_told_of_trim();
  });
}

// libucm enters the kernel by itself, so hooks alone are trusted only where the application answers for the rest.
TEST_P(hooks_ucm, R33_monitors_pass_the_self_test_beside_ucm) {
  for (const bool first : {true, false}) {
    run_in_child([this, first] {
      if (first) load();
      const auto before = monitors::choose(monitor_choice::hooks | monitor_choice::manual);
      EXPECT_TRUE(before.keeps) << before.text;
      if (!first) load();
      const auto after = monitors::choose(monitor_choice::hooks | monitor_choice::manual);
      EXPECT_TRUE(after.keeps) << after.text;
      EXPECT_TRUE(after.set->watch({page, 2 * page}));
      expect_told_of_trim();
    });
  }
}

TEST_P(hooks_ucm, R38_hooks_are_installed_and_removed_beside_ucm) {
  for (const bool first : {true, false}) {
    run_in_child([this, first] {
      if (first) load();
      for (int i = 0; i < 20; ++i) {
        const auto ours = hooks_here();
        ASSERT_TRUE(ours) << describe(ours.error());
        if (!first && i == 10) load();
        ASSERT_TRUE((*ours)->watch({page, 2 * page}));
        expect_told_of_trim();
      }
      void* const block = std::malloc(64 * mib);
      ASSERT_NE(block, nullptr);
      std::free(block);
    });
  }
}

}  // namespace
}  // namespace pinfold::testing::hooks_ucm_test
