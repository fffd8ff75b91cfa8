// SPDX-License-Identifier: BSD-3-Clause
// A busy program over every allocator that is installed: no wrong byte (R30, R33).
#include "support/host/sanitized.hpp"
#include "support/host/settings.hpp"
#include "support/processes/child_process.hpp"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <ostream>
#include <string>
#include <vector>

namespace pinfold::testing::allocators_test {
namespace {

struct allocator {
  const char* name;
  const char* preloaded;  ///< a library, or null
  const char* memory;     ///< the program's second argument
  const char* monitors = "automatic";
};
void PrintTo(const allocator& one, std::ostream* to) { *to << one.name; }

const std::vector<allocator> allocators{
    {"glibc", nullptr, "malloc"},
    {"jemalloc", "libjemalloc.so.2", "malloc"},
    {"mimalloc", "libmimalloc.so.2", "malloc"},
    {"tcmalloc", "libtcmalloc_minimal.so.4", "malloc"},
    {"own_mappings", nullptr, "mappings"},
    // `strict`: another thread may get memory that a thread unmaps with a raw call.
    {"inline_system_calls", nullptr, "inline", "strict"},
    {"inline_system_calls_seen_by_bpf", nullptr, "inline", "bpf"},
};

std::string seconds() { return std::to_string(setting("PINFOLD_TEST_SECONDS", 2)); }

std::string path_of(const char* library) {
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu/", "/usr/lib/aarch64-linux-gnu/", "/usr/lib64/", "/usr/lib/"})
    if (const auto path = std::string(folder) + library; std::filesystem::exists(path)) return path;
  return {};
}

/// Returns the workload's exit status, or minus the signal that killed it.
int run(const std::string& program, const std::string& preloaded, const char* memory, const char* monitors) {
  const auto time = seconds();
  child_process child([&](line&) {
    if (!preloaded.empty()) ::setenv("LD_PRELOAD", preloaded.c_str(), 1);
    ::execl(program.c_str(), program.c_str(), time.c_str(), memory, monitors, nullptr);
    return 127;
  });
  return child.reap();
}

class allocators_of : public ::testing::TestWithParam<allocator> {};

TEST_P(allocators_of, R30_program_with_this_allocator_sends_no_stale_bytes) {
  const auto& one = GetParam();
  const std::string program = PINFOLD_WORKLOAD;
  if (!std::filesystem::exists(program)) GTEST_SKIP() << "not built here, or not to be read: " << program;
  std::string preloaded;
  if (one.preloaded != nullptr) {
    if (sanitized) GTEST_SKIP() << "the sanitizer has an allocator of its own";
    preloaded = path_of(one.preloaded);
    if (preloaded.empty()) GTEST_SKIP() << "no " << one.preloaded;
  }
  const int status = run(program, preloaded, one.memory, one.monitors);
  if (status == 77) GTEST_SKIP() << "no monitor proved itself";
  EXPECT_EQ(status, 0) << "1: wrong bytes; 2: it could not be tried; negative: died of that signal";
}

INSTANTIATE_TEST_SUITE_P(over, allocators_of, ::testing::ValuesIn(allocators),
                         [](const auto& one) { return one.param.name; });

// Nothing can be hooked or preloaded in a static program: userfaultfd sees its unmaps.
TEST(allocators, R30_static_program_sends_no_stale_bytes) {
#if defined(PINFOLD_STATIC_WORKLOAD)
  const int status = run(PINFOLD_STATIC_WORKLOAD, "", "malloc", "automatic");
  if (status == 77) GTEST_SKIP() << "no monitor proved itself";
  EXPECT_EQ(status, 0) << "1: wrong bytes; 2: it could not be tried; negative: died of that signal";
  EXPECT_EQ(run(PINFOLD_STATIC_WORKLOAD, "", "mappings", "unannounced"), 1) << "it would show them";
#else
  GTEST_SKIP() << (sanitized ? "sanitizers need the C library's shared one" : "there are no static libraries here");
#endif
}

// The control: without a monitor such a program gets wrong bytes.
TEST(allocators, program_without_a_monitor_sends_stale_bytes) {
  if (!std::filesystem::exists(PINFOLD_WORKLOAD)) GTEST_SKIP() << "not to be read: " << PINFOLD_WORKLOAD;
  EXPECT_EQ(run(PINFOLD_WORKLOAD, "", "mappings", "unannounced"), 1);
}

}  // namespace
}  // namespace pinfold::testing::allocators_test
