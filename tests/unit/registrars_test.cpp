// SPDX-License-Identifier: BSD-3-Clause
// What is special about the small registrars; what they have in common is in tests/conformance.
#include <pinfold/registrars/mlock.hpp>
#include <pinfold/registrars/null.hpp>
#include <pinfold/registrars/trace.hpp>

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <sys/mman.h>
#include <vector>

namespace pinfold::testing {
namespace {

std::size_t locked_pages() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word != "VmLck:") continue;
    std::size_t kilobytes = 0;
    status >> kilobytes;
    return kilobytes / 4;
  }
  return 0;
}

TEST(mlock_registrar, locks_do_not_nest_so_it_counts) {
  void* const memory = ::mmap(nullptr, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto base = reinterpret_cast<std::uintptr_t>(memory);
  const auto start = locked_pages();
  mlock_registrar registrar;
  auto outer = registrar.open({base, base + 6 * 4096}, local_access);
  auto inner = registrar.open({base + 2 * 4096 + 100, base + 3 * 4096 - 100}, local_access);
  auto beyond = registrar.open({base + 5 * 4096, base + 8 * 4096}, local_access);
  ASSERT_TRUE(outer && inner && beyond);
  EXPECT_EQ(locked_pages(), start + 8);
  EXPECT_TRUE(registrar.close(*outer));
  EXPECT_EQ(locked_pages(), start + 4) << "the inner one's page, and the three of the other";
  EXPECT_TRUE(registrar.close(*inner));
  EXPECT_EQ(locked_pages(), start + 3);
  EXPECT_EQ(registrar.close(*inner).error().code, errc::invalid_argument);
  EXPECT_TRUE(registrar.close(*beyond));
  EXPECT_EQ(locked_pages(), start);
  ::munmap(memory, 8 * 4096);
}

TEST(mlock_registrar, hole_in_the_middle_does_not_keep_the_rest_locked) {
  const auto start = locked_pages();
  void* const memory = ::mmap(nullptr, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto base = reinterpret_cast<std::uintptr_t>(memory);
  mlock_registrar registrar;
  auto made = registrar.open({base, base + 8 * 4096}, local_access);
  ASSERT_TRUE(made);
  ::munmap(static_cast<char*>(memory) + 2 * 4096, 4096);
  EXPECT_TRUE(registrar.close(*made));
  EXPECT_EQ(locked_pages(), start);
  ::munmap(memory, 8 * 4096);
}

TEST(mlock_registrar, memory_that_was_unmapped_is_not_locked_any_more) {
  void* const memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mlock_registrar registrar;
  auto made = registrar.open({reinterpret_cast<std::uintptr_t>(memory), reinterpret_cast<std::uintptr_t>(memory) + 64},
                             local_access);
  ASSERT_TRUE(made);
  ::munmap(memory, 4096);
  EXPECT_TRUE(registrar.close(*made));
}

TEST(trace_registrar, tells_every_call) {
  std::vector<traced_call> heard;
  trace_registrar registrar(null_registrar{}, [&](const traced_call& call) { heard.push_back(call); });
  auto made = registrar.open({100, 200}, rights::local_read);
  ASSERT_TRUE(made);
  EXPECT_TRUE(registrar.close(*made));
  ASSERT_EQ(heard.size(), 2U);
  EXPECT_EQ(heard[0].what, traced_call::kind::open);
  EXPECT_EQ(heard[0].memory, (range{100, 200}));
  EXPECT_EQ(heard[0].access, rights::local_read);
  EXPECT_EQ(heard[0].failure, nullptr);
  EXPECT_EQ(heard[1].what, traced_call::kind::close);
}

}  // namespace
}  // namespace pinfold::testing
