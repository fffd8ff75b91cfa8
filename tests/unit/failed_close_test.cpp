// SPDX-License-Identifier: BSD-3-Clause
// The driver refuses to close a registration that was never handed out: R41.
#include "support/fixtures/local_fixture.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace pinfold::testing::failed_close_test {
namespace {

std::optional<error> closes_fail(driver_call call, const fake_handle&) {
  if (call == driver_call::open) return std::nullopt;
  return error{errc::driver_error, native_kind::posix, 5, "the close fails"};
}

/// An importer that knows only after the open how large the allocation is.
class cautious_importer : public fake_importer {
 public:
  static constexpr std::uint64_t known = 64;

  using fake_importer::fake_importer;
  [[nodiscard]] result<range> check(const fake_handle& handle) const noexcept {
    return range{handle.base, handle.base + known};
  }
};

auto acquire(fake_fixture<cautious_importer>& f, const fake_handle& handle) {
  return f.cache.acquire({handle.exporter}, handle, handle.base, cautious_importer::known);
}

TEST(failed_close, R41_oversized_import_is_quarantined_with_its_open_range_and_bytes) {
  fake_fixture<cautious_importer> f({.max_bytes = 0x800});
  const auto handle = f.world->allocate(1, 0x10000, 0x1000);
  f.world->inject(closes_fail);
  EXPECT_EQ(acquire(f, handle).error().code, errc::larger_than_budget);
  const auto listed = f.cache.dump();
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0].state, entry_state::quarantined);
  EXPECT_EQ(listed[0].covered, handle.allocation());
  EXPECT_EQ(listed[0].bytes, 0x1000U);
  EXPECT_EQ(f.cache.statistics().bytes_now, 0x1000U) << "what is registered counts, also where it is too much";
  EXPECT_EQ(f.cache.statistics().entries_now, 1U);
  f.world->heal();
  EXPECT_TRUE(f.cache.flush());
  EXPECT_EQ(f.cache.statistics().bytes_now, 0U);
  f.expect_sound();
}

TEST(failed_close, R6_conflict_beyond_the_requested_range_is_found_and_closed) {
  fake_fixture<cautious_importer> f({.max_bytes = 0x800});
  const auto large = f.world->allocate(1, 0x10000, 0x1000);
  f.world->inject(closes_fail);
  EXPECT_FALSE(acquire(f, large));
  f.world->heal();
  const auto inside = f.world->allocate(1, 0x10800, 64);  // to the driver it overlaps the allocation that is still open
  const auto got = acquire(f, inside);
  EXPECT_TRUE(got) << describe(got.error());
  f.expect_sound();
}

TEST(failed_close, R41_bypass_over_the_budget_counts_its_open_bytes) {
  fake_fixture<cautious_importer> f({.max_bytes = 0x1000, .full = when_full::bypass});
  f.world->extra_bytes = 0x1000;
  f.world->inject(closes_fail);
  EXPECT_FALSE(acquire(f, f.world->allocate(1, 0x10000, 0x1000)));
  EXPECT_EQ(f.cache.statistics().bytes_now + f.cache.statistics().bypass_bytes, 0x2000U);
  f.world->heal();
  EXPECT_TRUE(f.cache.flush());
  EXPECT_EQ(f.cache.statistics().bytes_now + f.cache.statistics().bypass_bytes, 0U);
  f.expect_sound();
}

TEST(failed_close, sink_is_notified_of_a_stale_registration_that_cannot_be_closed) {
  std::vector<event_kind> told;
  range where{};
  std::int32_t native = 0;
  local_fixture f({.sink = [&](const event& what) {
    told.push_back(what.kind);
    if (what.kind != event_kind::close_failed) return;
    where = what.where;
    native = what.cause == nullptr ? 0 : what.cause->native;
  }});
  f.device->fail_opens([&](const range&, access_flags) -> std::optional<error> {
    f.invalidate(0x1000, 0x1001);
    return std::nullopt;
  });
  f.device->fail_closes(1);
  auto lease = f.acquire(0x1000, 0x2000);
  ASSERT_TRUE(lease);
  EXPECT_TRUE(lease->stale());
  EXPECT_EQ(f.cache.statistics().failed_closes, 1U);
  EXPECT_EQ(std::count(told.begin(), told.end(), event_kind::close_failed), 1);
  EXPECT_EQ(where, (range{0x1000, 0x2000}));
  EXPECT_EQ(native, 5);
  EXPECT_TRUE(lease->release());
  f.expect_sound();
}

// The other thread's close fails after this one has looked for failed closes.
TEST(failed_close, R41_flush_and_quiesce_close_what_another_thread_failed_to_close_meanwhile) {
  for (const bool quiesces : {false, true}) {
    local_fixture f;
    f.touch(0x10000, 0x11000);
    std::atomic<bool> closing{false};
    std::atomic<bool> waits{false};
    f.device->fail_closes(1);
    f.device->on_close = [&] {
      if (closing.exchange(true)) return;
      while (!waits) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    };
    {
      std::jthread other([&] { f.cache.evict(1); });
      while (!closing) std::this_thread::yield();
      waits = true;
      const auto done = quiesces ? f.cache.quiesce() : f.cache.flush();
      EXPECT_TRUE(done) << describe(done.error());
      EXPECT_EQ(f.device->open_count(), 0U);
    }
    EXPECT_EQ(f.cache.statistics().quarantined, 0U);
  }
}

}  // namespace
}  // namespace pinfold::testing::failed_close_test
