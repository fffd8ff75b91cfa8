// SPDX-License-Identifier: BSD-3-Clause
// The numbers that tell caches apart in hits: there are 255, and none may be lost.
#include "support/fixtures/local_fixture.hpp"
#include "support/host/room_for_threads.hpp"
#include "support/host/sanitized.hpp"
#include "support/processes/child_process.hpp"

#include <memory>
#include <system_error>
#include <vector>

namespace pinfold::testing::cache_number_test {
namespace {

constexpr std::size_t numbers = 255;

struct numbered_cache : pinfold::cache<fake_registrar> {
  explicit numbered_cache(cache_options options = {})
      : cache(fake_registrar(std::make_shared<fake_device>()), keeping(std::move(options))) {}

  /// Returns 0 when all numbers are taken: then every hit takes the mutex.
  [[nodiscard]] std::uint32_t number() const { return this->hits().number; }
};

TEST(cache_number, constructor_that_throws_frees_its_number) {
  if (sanitized) GTEST_SKIP() << "sanitizers need address space";
  static_cast<void>(numbered_cache().number());  // allocates what the first cache of a process allocates
  const room_for_threads none(0);
  std::size_t thrown = 0;
  for (std::size_t i = 0; i < numbers + 1; ++i) {
    try {
      const numbered_cache cache({.reaper = true});
    } catch (const std::system_error&) {
      ++thrown;
    }
  }
  EXPECT_EQ(thrown, numbers + 1) << "threads could be started after all";
  EXPECT_NE(numbered_cache().number(), 0U);
}

// Each child makes a cache, and a child of its own. The caches of its parents are not its own, and take no number from
// it.
int descend(std::size_t generations) {
  const numbered_cache mine;
  if (mine.number() == 0) return 1;
  if (generations == 0) return 0;
  child_process child([&](line&) { return descend(generations - 1); });
  return child.finish();
}

TEST(cache_number, R37_fork_child_can_use_all_numbers) {
  std::vector<std::unique_ptr<numbered_cache>> all;
  for (std::size_t i = 0; i < numbers; ++i) all.push_back(std::make_unique<numbered_cache>());
  EXPECT_NE(all.back()->number(), 0U);
  EXPECT_EQ(numbered_cache().number(), 0U) << "one too many";
  EXPECT_EQ(descend(0), 1);
  child_process child([&](line&) { return descend(20); });
  EXPECT_EQ(child.finish(), 0);
}

// The same number, the same address, and pages as a new cache expects them: the thread's hint is the parent's record,
// which is hittable in the child's copy.
TEST(cache_number, R37_a_childs_cache_does_not_find_its_parents_registrations) {
  local_fixture parent;
  for (int i = 0; i < 3; ++i) parent.touch(0x10000, 0x11000);
  child_process child([&](line&) {
    for (std::size_t i = 0; i < numbers; ++i) {
      local_fixture own;
      if (own.cached(0x10000, 0x11000)) return 1;
      if (!own.acquire(0x10000, 0x11000) || own.device->opened != 1U) return 2;
    }
    std::vector<std::unique_ptr<numbered_cache>> all;
    for (std::size_t i = 0; i < numbers; ++i) {
      all.push_back(std::make_unique<numbered_cache>());
      if (all.back()->find(reinterpret_cast<void*>(0x10000), 0x1000)) return 3;
    }
    return 0;
  });
  EXPECT_EQ(child.finish(), 0);
  EXPECT_TRUE(parent.cached(0x10000, 0x11000));
}

}  // namespace
}  // namespace pinfold::testing::cache_number_test
