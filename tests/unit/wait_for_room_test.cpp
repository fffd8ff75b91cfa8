// SPDX-License-Identifier: BSD-3-Clause
// Everything that makes room wakes a request that waits for room, not only releases (R14).
#include "support/fixtures/local_fixture.hpp"

#include <pinfold/detail/hit.hpp>

#include <chrono>
#include <functional>
#include <thread>

namespace pinfold::testing::wait_for_room_test {
namespace {

using namespace std::chrono_literals;

constexpr auto longest = 60s;

/// Fills a cache with one persistent entry without a lease, starts a thread that waits for room, and then calls `what`.
void expect_room_after(const std::function<void(local_fixture<>&)>& what) {
  local_fixture f({.max_count = 1, .full = when_full::wait, .full_timeout = longest});
  EXPECT_TRUE(f.acquire(0x10000, 0x11000, local_access, {.persistent = true}));
  const auto start = std::chrono::steady_clock::now();
  std::thread waiting([&] { EXPECT_TRUE(f.acquire(0x20000, 0x21000)); });
  while (detail::releases_awaited == 0) std::this_thread::yield();
  what(f);
  waiting.join();
  EXPECT_LT(std::chrono::steady_clock::now() - start, longest);
}

TEST(wait_for_room, R14_wait_for_room_ends_after_unpersist) {
  expect_room_after([](auto& f) { f.cache.unpersist(reinterpret_cast<void*>(0x10000), 0x1000); });
}

TEST(wait_for_room, R14_wait_for_room_ends_when_a_persistent_entry_is_invalidated) {
  expect_room_after([](auto& f) { f.invalidate(0x10000, 0x11000); });
}

}  // namespace
}  // namespace pinfold::testing::wait_for_room_test
