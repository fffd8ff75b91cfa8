// SPDX-License-Identifier: BSD-3-Clause
// One lease on a range of any size (R65).
#include "support/fixtures/local_fixture.hpp"

#include <cstdint>
#include <mutex>
#include <set>
#include <vector>

namespace pinfold::testing::large_lease_test {
namespace {

constexpr std::size_t gib = std::size_t{1} << 30U;
constexpr std::size_t mib = std::size_t{1} << 20U;

void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

void expect_contiguous(const large_lease<fake_registrar>& lease, range whole) {
  auto expected = whole.begin;
  for (std::size_t i = 0; i < lease.pieces(); ++i) {
    const auto piece = lease.piece(i);
    EXPECT_EQ(piece.where.begin, expected);
    EXPECT_TRUE(piece.held);
    expected = piece.where.end;
  }
  EXPECT_EQ(expected, whole.end);
  EXPECT_EQ(lease.where(), whole);
  EXPECT_EQ(lease.bytes(), whole.size());
}

TEST(large_lease, R65_pieces_meet_at_1_GiB_and_cover_the_range) {
  local_fixture f;
  f.device->limits.granularity = 0x1000;
  const range whole{0x100123, 0x100123 + 5 * gib};
  auto lease = f.cache.acquire_large(at(whole.begin), whole.size());
  ASSERT_TRUE(lease) << describe(lease.error());
  EXPECT_EQ(lease->pieces(), 6U);
  expect_contiguous(*lease, whole);
  for (std::size_t i = 1; i < lease->pieces(); ++i) EXPECT_EQ(lease->piece(i).where.begin % gib, 0U);
  EXPECT_TRUE(lease->release());
  EXPECT_FALSE(*lease);
  f.expect_sound();
}

TEST(large_lease, R65_pieces_below_1_GiB_meet_at_2_MiB) {
  local_fixture f;
  f.device->limits = {.granularity = 0x1000, .max_bytes = gib - 0x1000, .supported = local_access};
  const range whole{0x300123, 0x300123 + 3 * gib};
  auto lease = f.cache.acquire_large(at(whole.begin), whole.size());
  ASSERT_TRUE(lease) << describe(lease.error());
  expect_contiguous(*lease, whole);
  for (std::size_t i = 1; i < lease->pieces(); ++i) EXPECT_EQ(lease->piece(i).where.begin % (2 * mib), 0U);
  for (const auto& [key, one] : f.device->now()) EXPECT_LE(one.memory.size(), gib - 0x1000);
}

TEST(large_lease, R65_any_piece_size_covers_the_range) {
  for (const std::size_t each : {std::size_t{1}, std::size_t{4095}, std::size_t{4096}, 2 * mib - 1, 2 * mib, 3 * mib})
    for (const std::size_t most : {std::size_t{4096}, 2 * mib, 2 * mib + 1, unlimited})
      for (const std::size_t bytes : {std::size_t{1}, std::size_t{20000}, each < 4096 ? 40000 : 9 * mib + 7}) {
        local_fixture f;
        f.device->limits.granularity = 0x1000;
        f.device->limits.max_bytes = most;
        if (bytes / std::min(each, most) > 100000) continue;
        const range whole{0x201005, 0x201005 + bytes};
        auto lease = f.cache.acquire_large(at(whole.begin), bytes, local_access, {.piece_bytes = each, .workers = 1});
        ASSERT_TRUE(lease) << describe(lease.error());
        expect_contiguous(*lease, whole);
        for (const auto& [key, one] : f.device->now()) EXPECT_LE(one.memory.size(), most);
      }
}

TEST(large_lease, R65_pieces_are_found_and_listed_by_address) {
  local_fixture f;
  f.device->limits.granularity = 0x1000;
  const std::uintptr_t begin = 64 * mib;
  auto lease = f.cache.acquire_large(at(begin), 64 * mib, local_access, {.piece_bytes = 2 * mib, .workers = 3});
  ASSERT_TRUE(lease);
  ASSERT_EQ(lease->pieces(), 32U);
  EXPECT_EQ(lease->at(at(begin)).where.begin, begin);
  EXPECT_EQ(lease->at(at(begin + 2 * mib - 1)).where.begin, begin);
  EXPECT_EQ(lease->at(at(begin + 2 * mib)).where.begin, begin + 2 * mib);
  EXPECT_EQ(lease->at(at(begin + 64 * mib - 1)).where.begin, begin + 62 * mib);
  EXPECT_TRUE(lease->at(at(begin - 1)).where.empty());
  EXPECT_FALSE(lease->at(at(begin + 64 * mib)).held);

  const auto parts = lease->list(at(begin + 3 * mib), 4 * mib);
  ASSERT_TRUE(parts);
  ASSERT_EQ(parts->size(), 3U);
  const auto now = f.device->now();
  auto from = begin + 3 * mib;
  for (const auto& one : *parts) {
    EXPECT_EQ(one.address, at(from));
    EXPECT_TRUE(now.at(one.registration.key).memory.contains({from, from + one.bytes}));
    from += one.bytes;
  }
  EXPECT_EQ(from, begin + 7 * mib);
  EXPECT_EQ(lease->list(at(begin - 1), 2).error().code, errc::invalid_range);
  EXPECT_EQ(lease->list(at(begin + 63 * mib), mib + 1).error().code, errc::invalid_range);
  EXPECT_EQ(lease->list(at(begin), 0).error().code, errc::invalid_range);
}

TEST(large_lease, R65_request_above_the_budget_evicts_nothing) {
  local_fixture f({.max_bytes = 8 * mib, .max_count = 3});
  f.touch(0x1000, 0x2000);
  const auto calls = f.device->calls.load();
  const large_options small{.piece_bytes = 2 * mib};
  EXPECT_EQ(f.cache.acquire_large(at(64 * mib), 9 * mib, local_access, small).error().code, errc::larger_than_budget);
  EXPECT_EQ(f.cache.acquire_large(at(64 * mib), 7 * mib, local_access, small).error().code, errc::larger_than_budget)
      << "four pieces";
  EXPECT_EQ(f.cache.acquire_large(at(64 * mib), std::size_t{1} << 46U, local_access, {.piece_bytes = 1}).error().code,
            errc::larger_than_budget)
      << "at once, however many pieces it would have";
  EXPECT_EQ(f.device->calls, calls);
  EXPECT_TRUE(f.cached(0x1000, 0x2000));
  EXPECT_TRUE(f.cache.acquire_large(at(64 * mib), 6 * mib, local_access, small));
}

TEST(large_lease, R65_too_many_pieces_are_refused_at_once) {
  local_fixture f;
  EXPECT_EQ(f.cache.acquire_large(at(4096), std::size_t{1} << 46U, local_access, {.piece_bytes = 1}).error().code,
            errc::too_large);
  EXPECT_EQ(f.device->calls, 0U);
}

TEST(large_lease, R65_bad_requests_are_refused) {
  local_fixture f;
  f.device->limits.supported = local_access;
  EXPECT_EQ(f.cache.acquire_large(at(4096), 0).error().code, errc::invalid_range);
  EXPECT_EQ(f.cache.acquire_large(at(4096), SIZE_MAX).error().code, errc::invalid_range);
  EXPECT_EQ(f.cache.acquire_large(at(4096), 1, access_flags::none).error().code, errc::invalid_argument);
  EXPECT_EQ(f.cache.acquire_large(at(4096), 1, access_flags::remote_read).error().code, errc::unsupported);
  EXPECT_EQ(f.cache.acquire_large(at(4096), 1, local_access, {.piece_bytes = 0}).error().code, errc::invalid_argument);
  const void* const constant = at(4096);
  EXPECT_EQ(f.cache.acquire_large(constant, 1, local_access).error().code, errc::invalid_argument);
  EXPECT_TRUE(f.cache.acquire_large(constant, 1));
  EXPECT_EQ(f.cache.acquire_large(at(8192), 1, local_access, {.file = 9999}).error().code, errc::invalid_argument);
  auto moved = std::move(f.cache);
  EXPECT_EQ(f.cache.acquire_large(at(4096), 1).error().code, errc::closed);
}

TEST(large_lease, R65_failure_leaves_no_lease_and_has_the_drivers_code) {
  for (const unsigned workers : {1U, 4U}) {
    local_fixture f;
    f.device->fail_opens([](const range& memory, access_flags) -> std::optional<error> {
      if (memory.begin != 70 * mib) return std::nullopt;
      return error{errc::driver_error, native_kind::posix, 5, "no"};
    });
    const auto lease =
        f.cache.acquire_large(at(64 * mib), 64 * mib, local_access, {.piece_bytes = 2 * mib, .workers = workers});
    ASSERT_FALSE(lease);
    EXPECT_EQ(lease.error().native, 5);
    EXPECT_EQ(f.cache.statistics().leases_now, 0U);
    f.expect_sound();
  }
}

TEST(large_lease, R65_second_lease_hits_every_piece) {
  local_fixture f;
  auto first = f.cache.acquire_large(at(64 * mib), 64 * mib, local_access, {.piece_bytes = 2 * mib});
  ASSERT_TRUE(first);
  auto second = f.cache.acquire_large(at(64 * mib), 64 * mib, local_access, {.piece_bytes = 2 * mib});
  ASSERT_TRUE(second);
  EXPECT_EQ(f.device->opened, 32U);
  EXPECT_EQ(f.cache.statistics().leases_now, 64U);
}

TEST(large_lease, R65_progress_rises_to_all_bytes) {
  local_fixture f;
  std::mutex mutex;
  std::vector<std::size_t> told;
  const auto lease = f.cache.acquire_large(at(64 * mib), 64 * mib, local_access,
                                           {.piece_bytes = 2 * mib, .workers = 4, .progress = [&](auto done, auto all) {
                                              EXPECT_TRUE(mutex.try_lock()) << "one thread at a time";
                                              EXPECT_EQ(all, 64 * mib);
                                              told.push_back(done);
                                              mutex.unlock();
                                            }});
  ASSERT_TRUE(lease);
  ASSERT_FALSE(told.empty());
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_EQ(told.back(), 64 * mib);
  const auto refused = f.cache.acquire_large(at(640 * mib), 64 * mib, local_access,
                                             {.piece_bytes = 2 * mib, .progress = [](auto, auto) { throw 1; }});
  EXPECT_EQ(refused.error().code, errc::invalid_argument);
  EXPECT_EQ(f.cache.statistics().leases_now, 32U);
}

TEST(large_lease, R65_invalidated_piece_makes_the_lease_stale) {
  local_fixture f;
  auto lease = f.cache.acquire_large(at(64 * mib), 64 * mib, local_access, {.piece_bytes = 2 * mib});
  ASSERT_TRUE(lease);
  EXPECT_FALSE(lease->stale());
  f.invalidate(66 * mib, 66 * mib + 1);
  EXPECT_TRUE(f.cache.progress());
  EXPECT_TRUE(lease->stale());
  EXPECT_TRUE(lease->at(at(66 * mib)).held.stale());
  EXPECT_FALSE(lease->at(at(64 * mib)).held.stale());
}

TEST(large_lease, R65_release_returns_the_first_failure_of_a_close) {
  local_fixture f({.retain = false});
  auto lease = f.cache.acquire_large(at(64 * mib), 8 * mib, local_access, {.piece_bytes = 2 * mib});
  ASSERT_TRUE(lease);
  f.device->fail_closes(1);
  const auto released = lease->release();
  ASSERT_FALSE(released);
  EXPECT_EQ(released.error().native, 5);
  EXPECT_EQ(lease->pieces(), 0U);
  EXPECT_TRUE(f.cache.flush());
  EXPECT_EQ(f.device->open_count(), 0U);
}

TEST(large_lease, R65_moves_leave_nothing_behind) {
  local_fixture f;
  auto lease = f.cache.acquire_large(at(64 * mib), 8 * mib, local_access, {.piece_bytes = 2 * mib});
  ASSERT_TRUE(lease);
  large_lease<fake_registrar> other = *std::move(lease);
  EXPECT_EQ(lease->pieces(), 0U);  // NOLINT(bugprone-use-after-move)
  EXPECT_TRUE(lease->where().empty());
  other = large_lease<fake_registrar>();
  EXPECT_EQ(f.cache.statistics().leases_now, 0U);
}

}  // namespace
}  // namespace pinfold::testing::large_lease_test
