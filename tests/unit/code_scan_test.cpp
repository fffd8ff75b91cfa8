// SPDX-License-Identifier: BSD-3-Clause
// Code that can unmap memory past the hooks, and code that only looks like it: R54.
#include "monitors/code_scan/call_numbers.hpp"
#include "monitors/code_scan/executable_memory.hpp"
#include "monitors/code_scan/kernel_entries.hpp"
#include "monitors/selection/selection.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <dlfcn.h>
#include <initializer_list>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

namespace pinfold::testing::code_scan_test {
namespace {

using namespace monitors::code_scan;

/// A function made of these bytes. `numbers` returns what its last system call can be.
struct assembled {
  std::vector<std::uint8_t> bytes;
  static constexpr std::uintptr_t at = 0x1000;

  assembled(std::initializer_list<int> all) {
    for (const int one : all) bytes.push_back(static_cast<std::uint8_t>(one));
  }
  [[nodiscard]] call_numbers numbers(const std::vector<std::uintptr_t>& entered_at = {}) const {
    const code_bytes code{bytes, at};
    const auto all = decode_all(code);
    for (std::size_t i = all.size(); i-- > 0;)
      if (all[i].enters == entry_by::syscall) return numbers_at(code, all, i, entered_at);
    ADD_FAILURE() << "no system call among " << all.size() << " instructions";
    return {};
  }
};

using numbers = std::vector<std::uint32_t>;

void expect_known(const call_numbers& found, const numbers& wanted) {
  auto values = found.values;
  std::ranges::sort(values);
  EXPECT_FALSE(found.unknown);
  EXPECT_EQ(values, wanted);
}

struct code_scan : ::testing::Test {
  void SetUp() override {
    if (!can_decode()) GTEST_SKIP() << "no decoder in this build";
  }
};

TEST_F(code_scan, constant_system_call_number_is_found) {
  expect_known(assembled{0xB8, 11, 0, 0, 0, 0x0F, 0x05, 0xC3}.numbers(), {11});                    // mov $11,%eax
  expect_known(assembled{0x31, 0xC0, 0x0F, 0x05, 0xC3}.numbers(), {0});                            // xor %eax,%eax
  expect_known(assembled{0x48, 0xC7, 0xC0, 28, 0, 0, 0, 0x90, 0x0F, 0x05, 0xC3}.numbers(), {28});  // mov $28,%rax
  expect_known(assembled{0x41, 0xB8, 202, 0, 0, 0, 0x44, 0x89, 0xC0, 0x0F, 0x05, 0xC3}.numbers(),
               {202});  // by way of r8d
}

TEST_F(code_scan, numbers_on_all_paths_to_the_instruction_are_found) {
  // test %edi,%edi; je 1f; mov $39,%eax; jmp 2f; 1: mov $11,%eax; 2: syscall; ret
  const assembled two{0x85, 0xFF, 0x74, 7, 0xB8, 39, 0, 0, 0, 0xEB, 5, 0xB8, 11, 0, 0, 0, 0x0F, 0x05, 0xC3};
  expect_known(two.numbers(), {11, 39});
  // mov $202,%r8d; 1: mov %r8d,%eax; syscall; test %eax,%eax; jne 1b; ret
  const assembled loop{0x41, 0xB8, 202, 0, 0, 0, 0x44, 0x89, 0xC0, 0x0F, 0x05, 0x85, 0xC0, 0x75, 0xF7, 0xC3};
  expect_known(loop.numbers(), {202});
}

TEST_F(code_scan, number_set_outside_the_function_is_unknown) {
  EXPECT_TRUE((assembled{0x0F, 0x05, 0xC3}.numbers().unknown)) << "the caller's";
  EXPECT_TRUE((assembled{0x48, 0x89, 0xF8, 0x0F, 0x05, 0xC3}.numbers().unknown)) << "an argument";
  EXPECT_TRUE((assembled{0xB8, 39, 0, 0, 0, 0xE8, 0, 0, 0, 0, 0x0F, 0x05, 0xC3}.numbers().unknown)) << "a call's";
  EXPECT_TRUE((assembled{0xB0, 39, 0x0F, 0x05, 0xC3}.numbers().unknown)) << "only a part of the register";
  const assembled moved_away{0xB8, 39, 0, 0, 0, 0x90, 0x0F, 0x05, 0xC3};
  expect_known(moved_away.numbers(), {39});
  EXPECT_TRUE(moved_away.numbers({assembled::at + 6}).unknown) << "another function jumps between";
  // jmp *%rdx; syscall
  EXPECT_TRUE((assembled{0xB8, 39, 0, 0, 0, 0xFF, 0xE2, 0x0F, 0x05, 0xC3}.numbers().unknown)) << "through a table";
}

TEST_F(code_scan, unknown_system_calls_are_dangerous) {
  for (const std::uint32_t harmless : {0U, 1U, 39U, 186U, 202U, 228U, 15U, 427U}) EXPECT_FALSE(is_dangerous(harmless));
  for (const std::uint32_t other : {9U, 10U, 11U, 12U, 25U, 28U, 216U, 425U, 426U, 440U, 1000U, 0x4000000BU})
    EXPECT_TRUE(is_dangerous(other)) << other;
}

TEST(executable_memory, regions_of_one_file_are_joined_and_named) {
  const auto found = executable_memory_in(
      "1000-2000 r--p 00000000 fd:00 77    /lib/libx.so\n"
      "2000-3000 r-xp 00001000 fd:00 77    /lib/libx.so\n"
      "3000-5000 r-xp 00002000 fd:00 77    /lib/libx.so\n"
      "5000-6000 rw-p 00004000 fd:00 77    /lib/libx.so\n"
      "7000-8000 r-xp 00000000 00:00 0 \n"
      "8000-9000 rwxp 00000000 00:00 0 \n"
      "9000-a000 r-xs 00000000 00:01 5     /memfd:jit (deleted)\n"
      "b000-c000 r-xp 00000000 00:00 0     [vdso]\n");
  ASSERT_EQ(found.size(), 5U);
  EXPECT_EQ(found[0].at, (range{0x2000, 0x5000}));
  EXPECT_EQ(found[0].header, 0x1000U);
  EXPECT_EQ(found[0].name(), "libx.so");
  EXPECT_TRUE(found[0].is_of_a_file());
  EXPECT_FALSE(found[1].is_of_a_file());
  EXPECT_TRUE(found[2].writable);
  EXPECT_FALSE(found[3].is_of_a_file());
  EXPECT_TRUE(found[4].is_of_the_kernel());
}

/// A fixture with a cache's choice of hooks alone.
struct hooks_alone : ::testing::Test {
  monitors::chosen chosen;

  void SetUp() override { chosen = choose(); }
  static monitors::chosen choose() { return monitors::choose(monitor_choice::hooks); }
  // Returns false in a process with a sanitizer, whose own system calls are found, and where nothing can be hooked.
  [[nodiscard]] bool kept() const { return chosen.keeps; }
  // Returns whether a miss may keep its registration.
  [[nodiscard]] bool may_keep() const {
    const auto& all = chosen.set->all();
    return std::ranges::all_of(all, [](const auto& one) { return one->works() && one->watch({}).has_value(); });
  }
};
#define PINFOLD_NEEDS_KEPT \
  if (!kept()) GTEST_SKIP() << chosen.text

void* load(const char* library) {
  void* const handle = ::dlopen(library, RTLD_NOW);
  EXPECT_NE(handle, nullptr) << library;
  return handle;
}

std::uint64_t generation() { return invalidation::event_log::here().generation().load(); }

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(hooks_alone, R54_libc_and_this_library_are_trusted) {
  if (chosen.text.find("hooks: ") != std::string::npos) GTEST_SKIP() << chosen.text;
  EXPECT_EQ(chosen.text, "hooks");
}
#endif

TEST_F(hooks_alone, R54_harmless_library_is_trusted_after_its_scan) {
  PINFOLD_NEEDS_KEPT;
  const auto before = generation();
  void* const library = load(PINFOLD_HARMLESS_CALLS);
  EXPECT_GT(generation(), before) << "what was kept before it came has to go";
  EXPECT_TRUE(may_keep());
  ::dlclose(library);
  EXPECT_TRUE(may_keep());
}

TEST_F(hooks_alone, R54_library_with_an_inline_munmap_is_not_trusted) {
  PINFOLD_NEEDS_KEPT;
  void* const library = load(PINFOLD_INLINE_MUNMAP);
  EXPECT_FALSE(may_keep());
  const auto again = choose();
  EXPECT_FALSE(again.keeps);
  EXPECT_NE(again.text.find("inline_munmap.so: munmap by its own instruction at +0x"), std::string::npos) << again.text;
  EXPECT_TRUE(monitors::choose(monitor_choice::hooks | monitor_choice::manual).keeps);
  ::dlclose(library);
  EXPECT_FALSE(may_keep()) << "what it did is done";
  EXPECT_TRUE(choose().keeps);
}

constexpr std::size_t page = 4096;
constexpr std::array<std::uint8_t, 8> munmap_code{0xB8, 11, 0, 0, 0, 0x0F, 0x05, 0xC3};

/// A page for machine code.
struct made_code {
  std::uint8_t* at =
      static_cast<std::uint8_t*>(::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  made_code() = default;
  made_code(const made_code&) = delete;
  made_code& operator=(const made_code&) = delete;
  ~made_code() { ::munmap(at, page); }
  [[nodiscard]] bool becomes(int protection) const { return ::mprotect(at, page, protection) == 0; }
};

TEST_F(hooks_alone, R54_code_made_executable_later_is_scanned) {
  PINFOLD_NEEDS_KEPT;
  const made_code made;
  made.at[0] = 0xC3;
  const auto before = generation();
  ASSERT_TRUE(made.becomes(PROT_READ | PROT_EXEC));
  EXPECT_GT(generation(), before);
  EXPECT_TRUE(may_keep()) << "no such bytes are in it";
  ASSERT_TRUE(made.becomes(PROT_READ | PROT_WRITE));
  std::memcpy(made.at, munmap_code.data(), munmap_code.size());
  ASSERT_TRUE(made.becomes(PROT_READ | PROT_EXEC));
  EXPECT_FALSE(may_keep());
}

TEST_F(hooks_alone, R54_writable_code_is_not_trusted) {
  PINFOLD_NEEDS_KEPT;
  const made_code made;
  ASSERT_EQ(::syscall(SYS_mprotect, made.at, page, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
  EXPECT_FALSE(may_keep());
  EXPECT_NE(choose().text.find("writable code"), std::string::npos) << choose().text;
}

TEST_F(hooks_alone, R54_shared_executable_mapping_is_not_trusted) {
  PINFOLD_NEEDS_KEPT;
  const int file = ::memfd_create("code", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(file, page), 0);
  void* const at = ::mmap(nullptr, page, PROT_READ | PROT_EXEC, MAP_SHARED, file, 0);
  ASSERT_NE(at, MAP_FAILED);
  EXPECT_FALSE(may_keep());
  ::munmap(at, page);
  ::close(file);
}

TEST_F(hooks_alone, R54_check_posts_no_event_while_no_code_is_new) {
  PINFOLD_NEEDS_KEPT;
  const auto before = generation();
  for (int i = 0; i < 100'000; ++i) ASSERT_TRUE(may_keep());
  EXPECT_EQ(generation(), before);
}

// Runs last, since the process remembers such a call.
TEST_F(hooks_alone, Z_R54_an_io_uring_is_not_trusted) {
  PINFOLD_NEEDS_KEPT;
  std::array<std::uint32_t, 32> parameters{};
  constexpr long io_uring_setup = 425;
  const auto ring = ::syscall(io_uring_setup, 1, parameters.data());
  EXPECT_FALSE(may_keep());
  EXPECT_NE(choose().text.find("an io_uring"), std::string::npos) << choose().text;
  if (ring >= 0) ::close(static_cast<int>(ring));
}

}  // namespace
}  // namespace pinfold::testing::code_scan_test
