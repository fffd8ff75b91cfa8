// SPDX-License-Identifier: BSD-3-Clause
// Hooks that another library removes or covers (R53): found out, posted, and installed again on top.
#include "support/fixtures/code_changes.hpp"
#include "support/fixtures/hooked.hpp"

#include <cerrno>
#include <sys/shm.h>
#include <sys/syscall.h>

namespace pinfold::testing::hooks_covered_test {
namespace {

constexpr std::size_t page = hooked_page;
using ranges = std::vector<range>;

TEST(hooks_covered, removed_hook_is_detected) {
  in_child([] {
    auto own = change(entry_of(function::shmdt), {});
    auto ours = hooks_here();
    ASSERT_TRUE(ours);
    own.before = own.now();
    write(own);
    EXPECT_FALSE((*ours)->works());
    auto again = hooks_here();
    ASSERT_TRUE(again);
    EXPECT_TRUE((*again)->works());
  });
}

// The hooks cannot tell whether a jump over theirs leads to them: they put a jump on top that leads to the other
// library's.
TEST(hooks_covered, R38_R53_hook_of_a_later_library_is_covered_and_both_are_called) {
  in_child([] {
    const registered_pages memory(8);
    for (const auto which : {function::munmap, function::madvise, function::brk}) {
      auto ours = hooks_here();
      ASSERT_TRUE(ours);
      other_library theirs(which);
      EXPECT_FALSE((*ours)->works());
      EXPECT_EQ(posted([&] { EXPECT_TRUE((*ours)->watch(memory.pages(0, 1))); }), (ranges{{0, UINTPTR_MAX}}));
      EXPECT_TRUE((*ours)->works());
      EXPECT_EQ(posted([&] { EXPECT_TRUE((*ours)->watch(memory.pages(0, 1))); }), ranges{}) << "once";
      EXPECT_TRUE(any_overlaps(posted([&] { ::munmap(memory.at(1), page); }), memory.pages(1, 2)));
      EXPECT_TRUE(any_overlaps(posted([&] { ::madvise(memory.at(2), page, MADV_FREE); }), memory.pages(2, 3)));
      EXPECT_EQ(posted([&] { ::brk(nullptr); }), ranges{});
      EXPECT_GE(theirs.calls(), 1U);
      ours->reset();
      EXPECT_TRUE(theirs.in_place());
      EXPECT_EQ(posted([&] { ::munmap(memory.at(3), page); }), ranges{});
      EXPECT_EQ(posted([&] { ::madvise(memory.at(4), page, MADV_FREE); }), ranges{});
      ours = hooks_here();
      ASSERT_TRUE(ours) << describe(ours.error());
      EXPECT_TRUE((*ours)->works());
      EXPECT_TRUE(any_overlaps(posted([&] { ::munmap(memory.at(5), page); }), memory.pages(5, 6)));
      EXPECT_TRUE(any_overlaps(posted([&] { ::madvise(memory.at(6), page, MADV_FREE); }), memory.pages(6, 7)));
      ours->reset();
      theirs.leave();
      ours = hooks_here();
      ASSERT_TRUE(ours);
      EXPECT_EQ(posted([&] { ::munmap(memory.at(7), page); }), (ranges{memory.pages(7, 8)}));
    }
  });
}

TEST(hooks_covered, R53_restored_code_invalidates_all_memory_and_is_hooked_again) {
  in_child([] {
    const auto entry = entry_of(function::munmap);
    const auto original = code_at(entry, 16);
    const auto ours = hooks_here();
    ASSERT_TRUE(ours);
    const registered_pages memory(4);
    EXPECT_EQ(posted([&] { write_as_libraries_do(entry, original); }), ranges{everything});
    EXPECT_EQ(posted([&] { ::munmap(memory.at(1), page); }), ranges{}) << "no hook";
    EXPECT_FALSE((*ours)->works());
    EXPECT_EQ(posted([&] { EXPECT_TRUE((*ours)->watch(memory.pages(0, 1))); }), ranges{everything});
    EXPECT_TRUE((*ours)->works());
    EXPECT_EQ(posted([&] { ::munmap(memory.at(2), page); }), (ranges{memory.pages(2, 3)}));
  });
}

// `mov $11,%eax; syscall; ret`: a call never comes by the hook.
TEST(hooks_covered, R53_jump_to_an_inline_system_call_is_covered) {
  in_child([] {
    const auto ours = hooks_here();
    ASSERT_TRUE(ours);
    const registered_pages memory(4);
    write_as_libraries_do(entry_of(function::munmap), {0xB8, 11, 0, 0, 0, 0x0F, 0x05, 0xC3});
    EXPECT_EQ(posted([&] { ::munmap(memory.at(1), page); }), ranges{});
    EXPECT_TRUE((*ours)->watch(memory.pages(0, 1)));
    EXPECT_EQ(posted([&] { EXPECT_EQ(::munmap(memory.at(2), page), 0); }), (ranges{memory.pages(2, 3)}));
  });
}

TEST(hooks_covered, R53_code_change_without_mprotect_is_found_by_the_next_event) {
  in_child([] {
    auto own = change(entry_of(function::shmdt), {});
    const auto ours = hooks_here();
    ASSERT_TRUE(ours);
    const registered_pages memory(2);
    own.before = own.now();
    EXPECT_EQ(posted([&] { write(own); }), ranges{}) << "no call of libc's mprotect";
    EXPECT_EQ(posted([&] { ::munmap(memory.at(1), page); }), (ranges{memory.pages(1, 2), everything}));
  });
}

TEST(hooks_covered, R53_watch_is_refused_while_the_code_is_writable) {
  in_child([] {
    const auto ours = hooks_here();
    ASSERT_TRUE(ours);
    auto* const text = reinterpret_cast<void*>(entry_of(function::brk) & ~(page - 1));
    ASSERT_EQ(::mprotect(text, page, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
    const auto kept = (*ours)->watch({page, 2 * page});
    ASSERT_FALSE(kept);
    EXPECT_STREQ(kept.error().message, "another library is changing the code of libc");
    EXPECT_FALSE((*ours)->works());
    ASSERT_EQ(::syscall(SYS_mprotect, text, page, PROT_READ | PROT_EXEC), 0);
    EXPECT_TRUE((*ours)->watch({page, 2 * page}));
    errno = 0;
    EXPECT_NE(::mprotect(text, page, PROT_GROWSDOWN | PROT_WRITE), 0) << "fails";
    EXPECT_TRUE((*ours)->works());
  });
}

TEST(hooks_covered, R31_mprotect_of_other_memory_is_no_event) {
  in_child([] {
    const auto ours = hooks_here();
    ASSERT_TRUE(ours);
    const registered_pages memory(2);
    EXPECT_EQ(posted([&] {
                EXPECT_EQ(::mprotect(memory.at(), page, PROT_READ), 0);
                EXPECT_EQ(::mprotect(memory.at(), page, PROT_READ | PROT_WRITE), 0);
              }),
              ranges{});
  });
}

TEST(hooks_covered, R53_watch_is_refused_when_the_hook_is_covered_each_time) {
  in_child([] {
    const auto ours = hooks_here();
    ASSERT_TRUE(ours);
    bool kept = true;
    for (std::uint8_t i = 0; i < 20 && kept; ++i) {
      write_as_libraries_do(entry_of(function::shmdt), {0xB8, i, 0, 0, 0, 0x0F, 0x05, 0xC3});
      kept = (*ours)->watch({page, 2 * page}).has_value();
    }
    EXPECT_FALSE(kept);
    EXPECT_FALSE((*ours)->works());
  });
}

// The hooks' new jump covers one that leads to their old jump: calls must not loop between them.
TEST(hooks_covered, R38_calls_do_not_loop_when_one_hook_is_covered_and_one_removed) {
  in_child([] {
    const registered_pages memory(4);
    auto own = change(entry_of(function::shmdt), {});
    const auto ours = hooks_here();
    ASSERT_TRUE(ours);
    const other_library theirs(function::munmap);
    own.before = own.now();
    write(own);
    const auto again = hooks_here();
    ASSERT_TRUE(again);
    EXPECT_TRUE((*again)->works());
    EXPECT_TRUE(any_overlaps(posted([&] { ::munmap(memory.at(1), page); }), memory.pages(1, 2)));
    EXPECT_GE(theirs.calls(), 1U);
    EXPECT_EQ(posted([&] { ::shmdt(memory.at(2)); }).size(), 1U);
  });
}

}  // namespace
}  // namespace pinfold::testing::hooks_covered_test
