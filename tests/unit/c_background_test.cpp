// SPDX-License-Identifier: BSD-3-Clause
// Large leases and background registration through the C interface (R65).
#include "support/fixtures/c_fixture.hpp"

#include <pinfold/background.h>

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

namespace pinfold::testing::c_background_test {
namespace {

constexpr std::uintptr_t begin = std::uintptr_t{64} << 20U;
constexpr std::size_t piece = std::size_t{2} << 20U;
constexpr std::size_t pieces = 8;
constexpr std::size_t bytes = pieces * piece;

void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

pinfold_large_options small_pieces() {
  pinfold_large_options how{};
  how.size = sizeof how;
  how.piece_bytes = piece;
  return how;
}

pinfold_background_options in_small_pieces() {
  pinfold_background_options how{};
  how.size = sizeof how;
  how.piece_bytes = piece;
  how.workers = 2;
  return how;
}

pinfold_background* start(c_fixture& f, const pinfold_background_options& how, std::size_t size = bytes) {
  const pinfold_range whole{begin, size};
  pinfold_background* ticket = nullptr;
  EXPECT_EQ(pinfold_register_in_background(f.cache, &whole, 1, c_local_access, &how, &ticket), PINFOLD_OK)
      << pinfold_last_error()->message;
  return ticket;
}

struct counted {
  std::atomic<int> calls{0};
  std::atomic<std::uint64_t> done{0};
  static void progress(void* self, std::uint64_t done, std::uint64_t total) {
    EXPECT_EQ(total, bytes);
    ++static_cast<counted*>(self)->calls;
    static_cast<counted*>(self)->done = done;
  }
};

TEST(c_large, R65_pieces_are_found_and_listed) {
  c_fixture f;
  counted told;
  auto how = small_pieces();
  how.progress = counted::progress;
  how.self = &told;
  how.argument = &told;
  pinfold_large* lease = nullptr;
  ASSERT_EQ(pinfold_acquire_large(f.cache, at(begin), bytes, c_local_access, &how, &lease), PINFOLD_OK);
  EXPECT_EQ(told.done, bytes);
  EXPECT_EQ(f.device.last_argument, &told);
  EXPECT_EQ(pinfold_large_pieces(lease), pieces);
  pinfold_range where{};
  pinfold_lease one{};
  ASSERT_EQ(pinfold_large_piece(lease, 1, &where, &one), PINFOLD_OK);
  EXPECT_EQ(where.base, begin + piece);
  EXPECT_EQ(one.data, at(begin + piece));
  ASSERT_EQ(pinfold_large_at(lease, at(begin + piece - 1), &where, nullptr), PINFOLD_OK);
  EXPECT_EQ(where.base, begin);
  EXPECT_EQ(pinfold_large_at(lease, at(begin - 1), &where, nullptr), PINFOLD_E_INVALID_RANGE);
  EXPECT_EQ(pinfold_large_piece(lease, pieces, &where, &one), PINFOLD_E_INVALID_ARGUMENT);

  std::array<pinfold_part, 2> parts{};
  std::size_t count = 0;
  ASSERT_EQ(pinfold_large_list(lease, at(begin + piece - 3), piece + 6, parts.data(), parts.size(), &count),
            PINFOLD_OK);
  EXPECT_EQ(count, 3U) << "one more than there is room for";
  EXPECT_EQ(parts[0].address, at(begin + piece - 3));
  EXPECT_EQ(parts[0].bytes, 3U);
  EXPECT_EQ(parts[1].bytes, piece);
  EXPECT_EQ(parts[1].registration, pinfold_registration_of(one));
  EXPECT_EQ(pinfold_large_list(lease, at(begin), bytes + 1, nullptr, 0, &count), PINFOLD_E_INVALID_RANGE);

  EXPECT_EQ(pinfold_large_is_stale(lease), 0);
  EXPECT_EQ(pinfold_invalidate(f.cache, at(begin), 1), PINFOLD_OK);
  EXPECT_EQ(pinfold_progress(f.cache), PINFOLD_OK);
  EXPECT_EQ(pinfold_large_is_stale(lease), 1);
  EXPECT_EQ(pinfold_large_release(lease), PINFOLD_OK);
  EXPECT_EQ(f.counters().leases_now, 0U);
  EXPECT_EQ(pinfold_large_release(nullptr), PINFOLD_OK);
}

TEST(c_large, R65_bad_input_is_refused) {
  c_fixture f;
  pinfold_large* lease = nullptr;
  auto how = small_pieces();
  const auto acquire = [&](std::size_t size, std::uint32_t access = c_local_access) {
    return pinfold_acquire_large(f.cache, at(begin), size, access, &how, &lease);
  };
  EXPECT_EQ(acquire(0), PINFOLD_E_INVALID_RANGE);
  EXPECT_EQ(acquire(SIZE_MAX), PINFOLD_E_INVALID_RANGE);
  EXPECT_EQ(acquire(bytes, 0), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(acquire(bytes, 1U << 20U), PINFOLD_E_INVALID_ARGUMENT);
  how.flags = PINFOLD_PERSISTENT;
  EXPECT_EQ(acquire(bytes), PINFOLD_E_INVALID_ARGUMENT);
  how.flags = PINFOLD_FILE;
  how.file = -1;
  EXPECT_EQ(acquire(bytes), PINFOLD_E_INVALID_ARGUMENT);
  how.size = 3;
  EXPECT_EQ(acquire(bytes), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_acquire_large(nullptr, at(begin), 1, c_local_access, nullptr, &lease), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_acquire_large(f.cache, at(begin), 1, c_local_access, nullptr, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(lease, nullptr);
  EXPECT_EQ(f.device.device->calls, 0U);
}

TEST(c_background, R65_everything_is_registered_and_taken) {
  c_fixture f;
  counted told;
  auto how = in_small_pieces();
  how.progress = counted::progress;
  how.self = &told;
  auto* ticket = start(f, how);
  ASSERT_EQ(pinfold_background_wait(ticket, PINFOLD_NO_TIMEOUT), PINFOLD_OK);
  pinfold_background_progress now{};
  now.size = sizeof now;
  ASSERT_EQ(pinfold_background_progress_of(ticket, &now), PINFOLD_OK);
  EXPECT_EQ(now.bytes_done, bytes);
  EXPECT_EQ(now.bytes_total, bytes);
  EXPECT_EQ(now.pieces_done, pieces);
  EXPECT_EQ(now.pieces_total, pieces);
  EXPECT_EQ(now.running, 0U);
  EXPECT_EQ(told.done, bytes);
  EXPECT_EQ(pinfold_background_ready_end(ticket), begin + bytes);
  EXPECT_EQ(pinfold_background_is_ready(ticket, at(begin), bytes), 1);
  EXPECT_EQ(pinfold_background_is_ready(ticket, at(begin), bytes + 1), 0);
  EXPECT_EQ(pinfold_background_wait_until_ready(ticket, begin + bytes + 1, 0), PINFOLD_E_INVALID_RANGE);
  EXPECT_EQ(pinfold_background_failure(ticket, nullptr, nullptr), 0);

  pinfold_large* part = nullptr;
  ASSERT_EQ(pinfold_background_acquire(ticket, at(begin + 1), piece, &part), PINFOLD_OK);
  EXPECT_EQ(pinfold_large_pieces(part), 2U);
  pinfold_large* all = nullptr;
  ASSERT_EQ(pinfold_background_take(ticket, &all), PINFOLD_OK);
  pinfold_large* none = nullptr;
  EXPECT_EQ(pinfold_background_take(ticket, &none), PINFOLD_E_CLOSED);
  EXPECT_EQ(pinfold_background_end(ticket), PINFOLD_OK);
  EXPECT_EQ(f.counters().leases_now, 2 + pieces) << "both leases outlive the ticket";
  EXPECT_EQ(pinfold_large_release(part), PINFOLD_OK);
  EXPECT_EQ(pinfold_large_release(all), PINFOLD_OK);
}

TEST(c_background, R65_failure_has_its_code_and_its_piece) {
  c_fixture f;
  f.device.device->fail_opens([](const range& memory, access_flags) -> std::optional<error> {
    if (memory.begin != begin + 2 * piece) return std::nullopt;
    return error{errc::not_permitted, native_kind::posix, 13, "no"};
  });
  auto how = in_small_pieces();
  how.workers = 1;
  auto* ticket = start(f, how);
  EXPECT_EQ(pinfold_background_wait(ticket, 10000), PINFOLD_E_NOT_PERMITTED);
  pinfold_error failure{};
  pinfold_range where{};
  ASSERT_EQ(pinfold_background_failure(ticket, &failure, &where), 1);
  EXPECT_EQ(failure.native, 13);
  EXPECT_EQ(where.base, begin + 2 * piece);
  EXPECT_EQ(where.bytes, piece);
  f.device.device->fail_opens({});
  EXPECT_EQ(pinfold_background_renew(ticket), PINFOLD_OK);
  EXPECT_EQ(pinfold_background_wait_until_ready(ticket, begin + bytes, 10000), PINFOLD_OK);
  EXPECT_EQ(pinfold_background_end(ticket), PINFOLD_OK);
  EXPECT_EQ(f.counters().leases_now, 0U);
}

TEST(c_background, R65_stale_pieces_are_written_and_renewed) {
  c_fixture f;
  auto* ticket = start(f, in_small_pieces());
  ASSERT_EQ(pinfold_background_wait(ticket, 10000), PINFOLD_OK);
  EXPECT_EQ(pinfold_invalidate(f.cache, at(begin + piece), 2 * piece), PINFOLD_OK);
  std::array<pinfold_range, 1> stale{};
  std::size_t count = 0;
  ASSERT_EQ(pinfold_background_stale(ticket, stale.data(), stale.size(), &count), PINFOLD_OK);
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(stale[0].base, begin + piece);
  pinfold_large* lease = nullptr;
  EXPECT_EQ(pinfold_background_acquire(ticket, at(begin), bytes, &lease), PINFOLD_E_STALE_HANDLE);
  EXPECT_EQ(pinfold_background_renew(ticket), PINFOLD_OK);
  EXPECT_EQ(pinfold_background_wait(ticket, 10000), PINFOLD_OK);
  EXPECT_EQ(pinfold_background_is_ready(ticket, at(begin), bytes), 1);
  EXPECT_EQ(pinfold_background_cancel(ticket, PINFOLD_CANCEL_KEEP), PINFOLD_OK);
  EXPECT_EQ(pinfold_background_cancel(ticket, 2), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_background_end(ticket), PINFOLD_OK);
}

TEST(c_background, R65_cache_may_be_destroyed_before) {
  auto options = c_options();
  options.drain_timeout_ms = 0;
  c_fixture f(options);
  f.device.device->call_takes = std::chrono::milliseconds(50);  // 25 s for all pieces: the cache ends before them
  auto* ticket = start(f, in_small_pieces(), 1000 * piece);
  ASSERT_EQ(pinfold_background_wait_until_ready(ticket, begin + piece, 20'000), PINFOLD_OK);
  const int destroyed = pinfold_destroy(f.cache);
  EXPECT_TRUE(destroyed == PINFOLD_OK || destroyed == PINFOLD_E_TIMED_OUT);
  f.cache = nullptr;
  EXPECT_EQ(pinfold_background_wait(ticket, 10000), PINFOLD_E_CLOSED);
  pinfold_large* lease = nullptr;
  EXPECT_EQ(pinfold_background_take(ticket, &lease), PINFOLD_E_CLOSED);
  EXPECT_EQ(pinfold_background_renew(ticket), PINFOLD_E_CLOSED);
  EXPECT_EQ(pinfold_background_end(ticket), PINFOLD_OK);
  EXPECT_EQ(f.device.finished, 1);
}

TEST(c_background, R65_registrars_callback_must_not_wait_for_the_ticket) {
  c_fixture f;
  std::atomic<pinfold_background*> ticket{nullptr};
  std::atomic<int> refused{0};
  f.device.in_open = [&] {
    while (ticket == nullptr) std::this_thread::yield();
    if (pinfold_background_wait(ticket, PINFOLD_NO_TIMEOUT) == PINFOLD_E_IN_USE_CONFLICT) ++refused;
  };
  ticket = start(f, in_small_pieces());
  EXPECT_EQ(pinfold_background_wait(ticket, 10000), PINFOLD_OK);
  EXPECT_EQ(refused, static_cast<int>(pieces));
  EXPECT_EQ(pinfold_background_end(ticket), PINFOLD_OK);
}

TEST(c_background, R65_bad_input_is_refused) {
  c_fixture f;
  auto how = in_small_pieces();
  const std::array<pinfold_range, 2> ranges{pinfold_range{begin, bytes}, pinfold_range{begin, 0}};
  pinfold_background* ticket = nullptr;
  const auto with = [&](const pinfold_range* given, std::size_t count) {
    return pinfold_register_in_background(f.cache, given, count, c_local_access, &how, &ticket);
  };
  EXPECT_EQ(with(nullptr, 1), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(with(ranges.data(), 0), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(with(ranges.data(), 2), PINFOLD_E_INVALID_RANGE);
  how.order = 2;
  EXPECT_EQ(with(ranges.data(), 1), PINFOLD_E_INVALID_ARGUMENT);
  how.size = sizeof how + 1;
  EXPECT_EQ(with(ranges.data(), 1), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(ticket, nullptr);
  EXPECT_EQ(pinfold_background_end(nullptr), PINFOLD_OK);
  EXPECT_EQ(pinfold_background_wait(nullptr, 0), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_background_ready_end(nullptr), 0U);
  EXPECT_EQ(pinfold_background_progress_of(nullptr, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(f.device.device->calls, 0U);
}

TEST(c_background, pace_and_first_piece_are_those_asked_for) {
  c_fixture f;
  auto how = in_small_pieces();
  how.piece_bytes = 2 * piece;
  how.first_piece_bytes = piece;
  how.bytes_per_second = 1;
  how.workers = 2;
  pinfold_background* ticket = start(f, how);
  ASSERT_NE(ticket, nullptr);
  ASSERT_EQ(pinfold_background_wait_until_ready(ticket, begin + piece, 20'000), PINFOLD_OK);
  EXPECT_EQ(pinfold_background_ready_end(ticket), begin + piece);
  EXPECT_EQ(pinfold_background_wait(ticket, 20), PINFOLD_E_TIMED_OUT) << "the rate lets no other piece begin";
  EXPECT_EQ(pinfold_background_end(ticket), PINFOLD_OK);
}

TEST(c_background, page_that_cannot_be_present_is_the_failure) {
  c_fixture f;
  auto how = in_small_pieces();
  how.prefault = PINFOLD_PREFAULT_HUGE_PAGES;
  const pinfold_range nothing{0x1000, 0x1000};  // below what a process may map
  pinfold_background* ticket = nullptr;
  ASSERT_EQ(pinfold_register_in_background(f.cache, &nothing, 1, c_local_access, &how, &ticket), PINFOLD_OK);
  EXPECT_EQ(pinfold_background_wait(ticket, PINFOLD_NO_TIMEOUT), PINFOLD_E_INVALID_RANGE);
  pinfold_error failure{};
  ASSERT_EQ(pinfold_background_failure(ticket, &failure, nullptr), 1);
  EXPECT_NE(failure.native, 0);
  EXPECT_EQ(f.device.device->calls, 0U);
  EXPECT_EQ(pinfold_background_end(ticket), PINFOLD_OK);
  how.prefault = PINFOLD_PREFAULT_HUGE_PAGES + 1;
  EXPECT_EQ(pinfold_register_in_background(f.cache, &nothing, 1, c_local_access, &how, &ticket),
            PINFOLD_E_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace pinfold::testing::c_background_test
