// SPDX-License-Identifier: BSD-3-Clause
// Pacing of background registration: the rate, pages made present before, and a short first piece.
#include "support/fixtures/local_fixture.hpp"
#include "support/host/test_pages.hpp"

#include <pinfold/background.hpp>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <gtest/gtest.h>
#include <optional>
#include <span>
#include <sys/mman.h>
#include <thread>
#include <utility>
#include <vector>

namespace pinfold::testing::background_pace_test {
namespace {

using namespace std::chrono_literals;
using clock = std::chrono::steady_clock;

constexpr std::size_t mib = std::size_t{1} << 20U;
constexpr std::uintptr_t begin = std::uintptr_t{1} << 40U;

void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

std::size_t present(const range& memory) {
  std::vector<unsigned char> seen(memory.size() / test_pages::page);
  EXPECT_EQ(::mincore(at(memory.begin), memory.size(), seen.data()), 0);
  std::size_t count = 0;
  for (const auto one : seen) count += one & 1U;
  return count;
}

TEST(background_pace, rate_limits_all_workers_together) {
  local_fixture f;
  const auto start = clock::now();
  auto ticket = f.cache.register_in_background(at(begin), 8 * 2 * mib, local_access,
                                               {.piece_bytes = 2 * mib, .workers = 4, .bytes_per_second = 50 * mib});
  ASSERT_TRUE(ticket);
  ASSERT_TRUE(ticket->wait());
  EXPECT_GE(clock::now() - start, 7 * 40ms) << "the first piece begins at once, the others after 40 ms each";
}

TEST(background_pace, pieces_that_are_registered_are_free_of_the_rate) {
  local_fixture f;
  const background_options slow{.piece_bytes = 2 * mib, .workers = 1, .bytes_per_second = 1};
  const auto held = f.cache.acquire_large(at(begin), 4 * mib, local_access, {.piece_bytes = 2 * mib});
  ASSERT_TRUE(held);
  auto ticket = f.cache.register_in_background(at(begin), 4 * mib, local_access, slow);
  ASSERT_TRUE(ticket);
  EXPECT_TRUE(ticket->wait_for(60s));
}

TEST(background_pace, cancel_ends_the_wait_for_a_turn) {
  local_fixture f;
  const background_options slow{.piece_bytes = 2 * mib, .workers = 3, .bytes_per_second = 1};
  const auto start = clock::now();
  auto ticket = f.cache.register_in_background(at(begin), 64 * mib, local_access, slow);
  ASSERT_TRUE(ticket);
  ASSERT_TRUE(ticket->wait_until_ready(begin + 2 * mib, 60s)) << "the first piece needs no turn";
  EXPECT_EQ(ticket->wait_for(30ms).error().code, errc::timed_out);
  EXPECT_TRUE(ticket->cancel(cancel_policy::keep));
  EXPECT_EQ(ticket->progress().pieces_done, 1U);
  EXPECT_FALSE(ticket->failure());
  ASSERT_TRUE(ticket->renew()) << "a stop at the rate limit is not the end of the cache";
  EXPECT_EQ(ticket->wait_for(30ms).error().code, errc::timed_out);
  EXPECT_TRUE(ticket->cancel(cancel_policy::give_back));
  EXPECT_LT(clock::now() - start, 60s);
}

TEST(background_pace, end_of_the_cache_ends_the_wait_for_a_turn) {
  std::optional<local_fixture<>> f(std::in_place);
  const background_options slow{.piece_bytes = 2 * mib, .workers = 2, .bytes_per_second = 1};
  auto ticket = f->cache.register_in_background(at(begin), 64 * mib, local_access, slow);
  ASSERT_TRUE(ticket);
  ASSERT_TRUE(ticket->wait_until_ready(begin + 2 * mib, 60s));
  std::jthread ending([&] {
    std::this_thread::sleep_for(20ms);
    auto moved = std::move(f->cache);
  });
  const auto done = ticket->wait_for(60s);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, errc::closed);
}

TEST(background_pace, pieces_take_turns_in_their_order) {
  for (int i = 0; i < 50; ++i) {
    local_fixture f;
    const background_options slow{.piece_bytes = 2 * mib, .workers = 8, .bytes_per_second = 1};
    auto ticket = f.cache.register_in_background(at(begin), 64 * mib, local_access, slow);
    ASSERT_TRUE(ticket);
    ASSERT_TRUE(ticket->wait_until_ready(begin + 2 * mib, 60s)) << "a later piece took the first turn";
  }
}

TEST(background_pace, renew_does_not_wait_for_turns_that_no_piece_used) {
  local_fixture f;
  const background_options slow{.piece_bytes = 2 * mib, .workers = 4, .bytes_per_second = 1};
  auto ticket = f.cache.register_in_background(at(begin), 4 * mib, local_access, slow);
  ASSERT_TRUE(ticket);
  ASSERT_TRUE(ticket->wait_until_ready(begin + 2 * mib, 60s));
  ASSERT_TRUE(ticket->cancel(cancel_policy::keep));
  ASSERT_TRUE(ticket->renew());
  EXPECT_TRUE(ticket->wait_for(60s));
}

// A worker that stops before its turn gives its piece back after `renew` has begun again at the first piece.
TEST(background_pace, renew_right_after_a_failure_leaves_no_piece_out) {
  for (int i = 0; i < 50; ++i) {
    local_fixture f;
    f.device->fail_opens([first = true](const range&, access_flags) mutable -> std::optional<error> {
      if (!std::exchange(first, false)) return std::nullopt;
      std::this_thread::sleep_for(2ms);  // until the others wait for their turns
      return error{errc::driver_error, native_kind::posix, 5, "no"};
    });
    auto ticket = f.cache.register_in_background(
        at(begin), 64 * mib, local_access,
        {.piece_bytes = 2 * mib, .workers = 32, .bytes_per_second = std::uint64_t{4} << 30U});
    ASSERT_TRUE(ticket);
    while (!ticket->failure()) std::this_thread::yield();
    ASSERT_TRUE(ticket->renew());
    const auto done = ticket->wait_for(60s);
    ASSERT_TRUE(done) << i << ": " << describe(done.error());
  }
}

class prefault_of_workers : public ::testing::TestWithParam<prefault_choice> {};

TEST_P(prefault_of_workers, all_pages_are_present_when_a_piece_is_registered) {
  const test_pages memory(4096);
  const auto whole = memory.pages(1, 4000);
  local_fixture f;
  auto ticket = f.cache.register_in_background(at(whole.begin), whole.size(), local_access,
                                               {.piece_bytes = mib, .workers = 3, .prefault = GetParam()});
  ASSERT_TRUE(ticket);
  ASSERT_TRUE(ticket->wait());
  EXPECT_EQ(present(whole), GetParam() == prefault_choice::none ? 0U : 4000U);
}

INSTANTIATE_TEST_SUITE_P(, prefault_of_workers,
                         ::testing::Values(prefault_choice::none, prefault_choice::pages, prefault_choice::huge_pages),
                         [](const auto& one) {
                           constexpr auto names = std::to_array({"none", "pages", "huge_pages"});
                           return names.at(one.index);
                         });

TEST(background_pace, memory_that_is_only_read_may_be_protected) {
  const test_pages memory(64);
  ASSERT_EQ(::mprotect(memory.at(0), 64 * test_pages::page, PROT_READ), 0);
  local_fixture f;
  const background_options how{.prefault = prefault_choice::pages};
  const void* const data = memory.at(0);
  auto reading = f.cache.register_in_background(data, 64 * test_pages::page, access_flags::local_read, how);
  ASSERT_TRUE(reading);
  EXPECT_TRUE(reading->wait());
  auto writing = f.cache.register_in_background(memory.at(0), 64 * test_pages::page, local_access, how);
  ASSERT_TRUE(writing);
  EXPECT_FALSE(writing->wait());
}

TEST(background_pace, pages_that_cannot_be_present_are_the_failure_of_their_piece) {
  const test_pages memory(1024);
  ASSERT_EQ(::munmap(memory.at(600), test_pages::page), 0);
  local_fixture f;
  auto ticket = f.cache.register_in_background(memory.at(0), 1024 * test_pages::page, local_access,
                                               {.piece_bytes = mib, .workers = 1, .prefault = prefault_choice::pages});
  ASSERT_TRUE(ticket);
  const auto done = ticket->wait();
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, errc::invalid_range);
  EXPECT_EQ(done.error().native, ENOMEM);
  ASSERT_TRUE(ticket->failure());
  EXPECT_TRUE(ticket->failure()->where.contains(memory.pages(600, 1)));
  EXPECT_GT(ticket->progress().pieces_done, 0U);
}

TEST(background_pace, first_piece_is_short) {
  local_fixture f;
  const std::uintptr_t gib = 1024 * mib;
  auto ticket = f.cache.register_in_background(at(begin), 3 * gib, local_access, {.workers = 1});
  ASSERT_TRUE(ticket);
  ASSERT_TRUE(ticket->wait());
  const auto parts = ticket->list(at(begin), 3 * gib);
  ASSERT_TRUE(parts);
  std::vector<std::size_t> sizes;
  for (const auto& one : *parts) sizes.push_back(one.bytes / mib);
  EXPECT_EQ(sizes, (std::vector<std::size_t>{16, 1008, 1024, 1024}));
}

TEST(background_pace, one_worker_works_until_a_short_first_piece_is_registered) {
  std::atomic<std::size_t> during_first{0};
  std::atomic<bool> together{false};
  local_fixture f;
  f.device->fail_opens([&, device = f.device.get()](const range& piece, access_flags) -> std::optional<error> {
    if (piece.begin == begin) {
      std::this_thread::sleep_for(50ms);
      during_first = device->calls.load();
    } else if (!together) {
      const auto until = clock::now() + 60s;
      while (device->calls < 3 && clock::now() < until) std::this_thread::yield();
      together = device->calls > 2;
    }
    return std::nullopt;
  });
  auto ticket = f.cache.register_in_background(at(begin), 512 * mib, local_access,
                                               {.piece_bytes = 64 * mib, .workers = 4, .first_piece_bytes = 16 * mib});
  ASSERT_TRUE(ticket);
  ASSERT_TRUE(ticket->wait());
  EXPECT_EQ(during_first, 1U) << "another worker called the driver meanwhile";
  EXPECT_TRUE(together) << "the other workers did not start";
}

TEST(background_pace, failure_of_a_short_first_piece_ends_the_workers_that_wait_for_it) {
  local_fixture f;
  std::atomic<int> opens{0};
  f.device->fail_opens([&](const range&, access_flags) -> std::optional<error> {
    if (++opens > 1) return std::nullopt;
    return error{errc::driver_error, native_kind::posix, EIO, "refused"};
  });
  auto ticket = f.cache.register_in_background(at(begin), 512 * mib, local_access, {.piece_bytes = 64 * mib});
  ASSERT_TRUE(ticket);
  const auto done = ticket->wait_for(60s);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().native, EIO);
  EXPECT_EQ(opens, 1);
  f.device->fail_opens({});
  EXPECT_TRUE(ticket->renew());
  EXPECT_TRUE(ticket->wait_for(60s));
}

TEST(background_pace, first_piece_of_the_largest_range_is_short_and_comes_first) {
  local_fixture f;
  const std::vector<range> ranges{{begin, begin + 256 * mib}, {begin + 512 * mib, begin + 1024 * mib}};
  std::vector<std::size_t> told;
  {
    auto ticket = f.cache.register_in_background(
        std::span(ranges), local_access,
        {.piece_bytes = 128 * mib,
         .workers = 1,
         .order = background_order::largest_first,
         .first_piece_bytes = 33 * mib,
         .progress = [&](std::size_t done, std::size_t) { told.push_back(done / mib); }});
    ASSERT_TRUE(ticket);
    ASSERT_TRUE(ticket->wait());
    EXPECT_EQ(ticket->progress().pieces_total, 7U);
  }
  EXPECT_EQ(told, (std::vector<std::size_t>{32, 128, 256, 384, 512, 640, 768}));
}

TEST(background_pace, first_piece_is_as_long_as_others_where_the_budget_has_no_room_for_more) {
  local_fixture f({.max_count = 3});
  auto ticket = f.cache.register_in_background(at(begin), 3 * 1024 * mib, local_access, {.workers = 1});
  ASSERT_TRUE(ticket);
  EXPECT_TRUE(ticket->wait());
  EXPECT_EQ(ticket->progress().pieces_total, 3U);
}

}  // namespace
}  // namespace pinfold::testing::background_pace_test
