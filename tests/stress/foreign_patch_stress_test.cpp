// SPDX-License-Identifier: BSD-3-Clause
// Another library that changes libc's munmap in one thread while the hooks are installed again in another (R53): both
// make the page writable and then read-only. Neither thread may write when the other has just made it read-only.
#include "support/fixtures/hooked.hpp"
#include "support/host/settings.hpp"
#include "support/processes/in_child.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <dlfcn.h>
#include <sched.h>
#include <thread>

namespace pinfold::testing::foreign_patch_stress_test {
namespace {

using change = bool (*)();

/// Covers munmap and puts its code back, until the end of its life.
class other_library {
 public:
  other_library(change cover, change put_back)
      : thread_([this, cover, put_back] {
          while (!end_.load()) {
            refused_ += (cover() ? 0U : 1U) + (put_back() ? 0U : 1U);
            std::this_thread::sleep_for(std::chrono::microseconds(++changes_ % 64));
          }
        }) {}
  other_library(const other_library&) = delete;
  other_library& operator=(const other_library&) = delete;
  ~other_library() {
    end_.store(true);
    thread_.join();
    std::printf("%llu changes by the other library\n", static_cast<unsigned long long>(changes_));
    EXPECT_EQ(refused_, 0U);
  }

 private:
  std::atomic<bool> end_{false};
  std::uint64_t changes_ = 0, refused_ = 0;
  std::thread thread_;
};

void stay_on_one_processor() {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(::sched_getcpu(), &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
}

void change_both() {
  void* const loaded = ::dlopen(PINFOLD_FOREIGN_PATCH, RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(loaded, nullptr) << ::dlerror();
  auto* const cover = reinterpret_cast<change>(::dlsym(loaded, "foreign_patch_cover"));
  auto* const put_back = reinterpret_cast<change>(::dlsym(loaded, "foreign_patch_put_back"));
  ASSERT_TRUE(cover != nullptr && put_back != nullptr);
  const auto hooks = hooks_here();
  ASSERT_TRUE(hooks) << describe(hooks.error());
  const some_pages memory(1);
  std::uint64_t installed = 0, refused = 0;
  {
    const other_library other(cover, put_back);
    const auto until = std::chrono::steady_clock::now() + stress_time(2);
    while (std::chrono::steady_clock::now() < until || installed < 100)  // that many, however little time there is
      if (!(*hooks)->works()) ++((*hooks)->watch(memory.pages(0, 1)) ? installed : refused);
  }
  std::printf("%llu times installed again, %llu refused\n", static_cast<unsigned long long>(installed),
              static_cast<unsigned long long>(refused));
  EXPECT_TRUE((*hooks)->watch(memory.pages(0, 1)));
  EXPECT_TRUE((*hooks)->works());
}

TEST(foreign_patch_stress, R53_hooks_are_installed_again_during_changes_of_the_same_page) { run_in_child(change_both); }

TEST(foreign_patch_stress, R53_hooks_are_installed_again_during_changes_on_one_processor) {
  run_in_child([] {
    stay_on_one_processor();
    change_both();
  });
}

}  // namespace
}  // namespace pinfold::testing::foreign_patch_stress_test
