// SPDX-License-Identifier: BSD-3-Clause
// Jumps at the entries of libc's functions: installed, removed, combined with others (R38), and refused.
#include "monitors/hooks/find.hpp"
#include "monitors/hooks/linker.hpp"
#include "monitors/hooks/patch.hpp"
#include "support/fixtures/code_changes.hpp"
#include "support/fixtures/hooked.hpp"
#include "support/host/sanitized.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sstream>
#include <string>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <thread>

namespace pinfold::testing::hooks_patch_test {
namespace {

constexpr std::size_t page = hooked_page;
using ranges = std::vector<range>;

std::vector<std::uint8_t> entries() {
  std::vector<std::uint8_t> all;
  const auto found = monitors::find_functions();
  EXPECT_TRUE(found);
  for (const auto& each : *found)
    for (std::size_t i = 0; each.entry != 0 && i < 16; ++i)
      all.push_back(reinterpret_cast<std::uint8_t*>(each.entry)[i]);
  return all;
}

std::size_t executable_and_writable() {
  std::size_t found = 0;
  std::FILE* const maps = std::fopen("/proc/self/maps", "re");
  for (std::array<char, 512> line{}; std::fgets(line.data(), line.size(), maps) != nullptr;)
    if (std::strstr(line.data(), " rwx") != nullptr) ++found;
  std::fclose(maps);
  return found;
}

// Returns the file that is mapped at the address, and the offset of the mapping.
std::pair<std::string, std::size_t> file_behind(std::uintptr_t at) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    range memory;
    std::size_t offset = 0;
    char dash = 0;
    std::string rights;
    std::string device;
    std::string inode;
    std::string file;
    words >> std::hex >> memory.begin >> dash >> memory.end >> rights >> offset >> device >> inode >> file;
    if (memory.begin <= at && at < memory.end) return {file, offset + (at - memory.begin)};
  }
  return {};
}

TEST(hooks_patch, removing_the_hooks_restores_the_code) {
  if (!supported()) GTEST_SKIP() << describe(hooks_here().error());
  const registered_pages memory(8);
  const auto writable = executable_and_writable();
  const auto before = entries();
  for (std::size_t i = 0; i < 3; ++i) {
    auto first = hooks_here();
    auto second = hooks_here();
    ASSERT_TRUE(first && second);
    EXPECT_NE(entries(), before);
    EXPECT_EQ(posted([&] { ::madvise(memory.at(i), page, MADV_DONTNEED); }), (ranges{memory.pages(i, i + 1)}));
    first->reset();
    EXPECT_EQ(posted([&] { ::madvise(memory.at(i), page, MADV_DONTNEED); }), (ranges{memory.pages(i, i + 1)}));
    second->reset();
    EXPECT_EQ(posted([&] { ::madvise(memory.at(i), page, MADV_DONTNEED); }), ranges{});
    EXPECT_EQ(entries(), before);
    EXPECT_EQ(executable_and_writable(), writable);
  }
}

TEST(hooks_patch, R38_an_earlier_hook_is_still_called) {
  in_child([] {
    const registered_pages memory(8);
    const other_library theirs(function::munmap);
    ::munmap(memory.at(), page);
    const auto alone = theirs.calls();
    ASSERT_GE(alone, 1U);
    auto ours = hooks_here();
    ASSERT_TRUE(ours) << describe(ours.error());
    EXPECT_EQ(posted([&] { EXPECT_EQ(::munmap(memory.at(1), page), 0); }), (ranges{memory.pages(1, 2)}));
    EXPECT_GT(theirs.calls(), alone);
    EXPECT_TRUE((*ours)->works());
    ours->reset();
    EXPECT_TRUE(theirs.in_place());
    const auto calls = theirs.calls();
    EXPECT_EQ(posted([&] { EXPECT_EQ(::munmap(memory.at(2), page), 0); }), ranges{});
    EXPECT_GT(theirs.calls(), calls);
  });
}

// A function that has a jump in it lacks the bytes by which the search recognises it.
TEST(hooks_patch, R38_dynamic_linkers_functions_are_found_under_jumps) {
  const auto ours = hooks_here();
  if (!ours) GTEST_SKIP() << describe(ours.error());
  const auto munmap = (*monitors::find_functions())[static_cast<std::size_t>(function::linker_munmap)];
  const auto mmap = (*monitors::find_functions())[static_cast<std::size_t>(function::linker_mmap)];
  ASSERT_TRUE(monitors::x86_64::leads_away(munmap.segment.from(munmap.entry)));
  const auto [file, offset] = file_behind(munmap.segment.at);
  const auto found = monitors::find_linker_functions(munmap.segment, file.c_str(), offset);
  EXPECT_EQ(found.munmap, munmap.entry);
  EXPECT_EQ(found.mmap, mmap.entry);
  EXPECT_NE(found.mmap, 0U);
  EXPECT_EQ(monitors::find_linker_functions(munmap.segment, "/proc/self/exe", 0).munmap, 0U) << "another file";
  EXPECT_EQ(monitors::find_linker_functions(munmap.segment, "", 0).munmap, 0U) << "no file";
}

TEST(hooks_patch, R38_hook_installed_while_the_hooks_were_removed_is_still_called) {
  in_child([] {
    const registered_pages memory(4);
    ASSERT_TRUE(hooks_here());
    const other_library theirs(function::munmap);
    const auto ours = hooks_here();
    ASSERT_TRUE(ours);
    const auto calls = theirs.calls();
    EXPECT_EQ(posted([&] { ::munmap(memory.at(1), page); }), (ranges{memory.pages(1, 2)}));
    EXPECT_GT(theirs.calls(), calls);
  });
}

void expect_hooks_refused(errc why) {
  const auto before = entries();
  const auto ours = hooks_here();
  ASSERT_FALSE(ours);
  EXPECT_EQ(ours.error(), why);
  EXPECT_EQ(entries(), before);
}

TEST(hooks_patch, breakpoint_of_a_debugger_is_refused) {
  in_child([] {
    write(change(entry_of(function::shmat), {{0xCC}, 1}));
    // the parent made the hooks before; the code at the entry now belongs to no hook
    expect_hooks_refused(errc::unsupported);
  });
}

TEST(hooks_patch, hooks_are_installed_and_removed_while_threads_call) {
  if (!supported()) GTEST_SKIP() << describe(hooks_here().error());
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> calls{0};
  const auto body = [&] {
    while (!stop.load()) {
      void* at = ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      ASSERT_NE(at, MAP_FAILED);
      ASSERT_EQ(::madvise(at, page, MADV_DONTNEED), 0);
      at = ::mremap(at, 2 * page, page, MREMAP_MAYMOVE);
      ASSERT_NE(at, MAP_FAILED);
      ASSERT_EQ(::posix_madvise(at, page, POSIX_MADV_NORMAL), 0);
      ASSERT_GT(::syscall(SYS_getpid), 0);
      ASSERT_EQ(::munmap(at, page), 0);
      calls.fetch_add(1);
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(body);
  while (calls.load() == 0) std::this_thread::yield();
  const some_pages memory(1);
  const watched them(memory.at(), page);
  for (int i = 0; i < (sanitized ? 100 : 1000); ++i) {
    auto ours = hooks_here();
    ASSERT_TRUE(ours);
    ASSERT_EQ(posted([&] { ::madvise(memory.at(), page, MADV_DONTNEED); }).size(), 1U);
  }
  stop = true;
  for (auto& thread : threads) thread.join();
}

// Filters the calls of one number with one value in the lower half of one argument: the kernel does `then` instead.
bool filter_calls(std::uint32_t number, unsigned argument, std::uint32_t value, std::uint32_t then) {
  const auto place = static_cast<std::uint32_t>(offsetof(seccomp_data, args) + argument * sizeof(std::uint64_t));
  std::array<sock_filter, 6> program{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, place),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, then),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  sock_fprog filter{program.size(), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

bool refuse_writable_code() {
  constexpr int all = PROT_READ | PROT_WRITE | PROT_EXEC;
  return filter_calls(SYS_mprotect, 2, all, SECCOMP_RET_ERRNO | EACCES);
}

// The kernel stops at the call, and a handler looks at the event log.
TEST(hooks_patch, R30_event_is_posted_before_the_system_call) {
  in_child([] {
    static std::uint64_t before = 0;
    static std::uint64_t seen = 0;
    const auto ours = hooks_here();
    ASSERT_TRUE(ours);
    const some_pages memory(2);
    const watched them(memory.at(), page);
    struct sigaction look{};
    look.sa_handler = [](int) { seen = invalidation::event_log::if_there()->generation().load(); };
    ASSERT_EQ(::sigaction(SIGSYS, &look, nullptr), 0);
    if (!filter_calls(SYS_munmap, 0, static_cast<std::uint32_t>(address_of(memory.at())), SECCOMP_RET_TRAP)) return;
    before = invalidation::event_log::here().generation().load();
    ::munmap(memory.at(), page);
    EXPECT_EQ(seen, before + 1);
  });
}

TEST(hooks_patch, text_that_cannot_be_written_is_refused) {
  in_child([] {
    const auto before = entries();
    if (!refuse_writable_code()) return;
    const auto ours = hooks_here();
    ASSERT_FALSE(ours);
    EXPECT_EQ(ours.error(), errc::not_permitted);
    EXPECT_EQ(ours.error().native, EACCES);
    EXPECT_EQ(entries(), before);
    const some_pages memory(2);
    const watched them(memory.at(), page);
    EXPECT_EQ(posted([&] { EXPECT_EQ(::munmap(memory.at(), page), 0); }), ranges{});
  });
}

TEST(hooks_patch, process_that_may_not_map_executable_memory_is_refused) {
  in_child([] {
    constexpr int set_mdwe = 65;
    if (::prctl(set_mdwe, 1, 0, 0, 0) != 0) return;  // Linux 6.3
    expect_hooks_refused(errc::not_permitted);
  });
}

TEST(hooks_patch, code_page_is_in_reach_and_unmapped_if_unused) {
  const auto found = monitors::find_functions();
  if (!found) GTEST_SKIP() << describe(found.error());
  const auto& segment = found->front().segment;
  std::uintptr_t at = 0;
  {
    auto made = monitors::code_page::make({segment.at, segment.end()});
    ASSERT_TRUE(made);
    EXPECT_TRUE(made->reached_from({segment.at, segment.end()}));
    at = made->next();
  }
  void* const again =
      ::mmap(reinterpret_cast<void*>(at), page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  EXPECT_EQ(address_of(again), at);
  ::munmap(again, page);
}

}  // namespace
}  // namespace pinfold::testing::hooks_patch_test
