// SPDX-License-Identifier: BSD-3-Clause
// Registration in the background (R65).
#include "support/fixtures/local_fixture.hpp"
#include "support/host/room_for_threads.hpp"
#include "support/host/sanitized.hpp"
#include "support/processes/child_process.hpp"

#include <pinfold/monitors/announce.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

namespace pinfold::testing::background_test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t mib = std::size_t{1} << 20U;
constexpr std::uintptr_t begin = 64 * mib;
constexpr std::size_t piece = 2 * mib;
constexpr std::size_t pieces = 16;
constexpr std::size_t bytes = pieces * piece;

void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }

/// A registrar whose opens stop until the test lets them go on.
struct gated_registrar : fake_registrar {
  using fake_registrar::fake_registrar;
  [[nodiscard]] result<registration_type> open(range memory, access_flags access) noexcept {
    ++waiting;
    for (int left = may_open; left <= 0 || !may_open.compare_exchange_weak(left, left - 1); left = may_open)
      if (left <= 0) std::this_thread::sleep_for(100us);
    --waiting;
    return fake_registrar::open(memory, access);
  }
  inline static std::atomic<int> may_open{0};
  inline static std::atomic<int> waiting{0};
};

template <class Condition>
bool soon(Condition&& holds) {
  for (int i = 0; i < 60'000 && !holds(); ++i) std::this_thread::sleep_for(1ms);
  return holds();
}

struct background : ::testing::Test {
  void SetUp() override { gated_registrar::may_open = gated_registrar::waiting = 0; }
  local_fixture<> free_;
  background_options small{.piece_bytes = piece, .workers = 2};
};

TEST_F(background, R65_everything_is_registered_and_can_be_taken) {
  auto ticket = free_.cache.register_in_background(at(begin), bytes, local_access, small);
  ASSERT_TRUE(ticket) << describe(ticket.error());
  ASSERT_TRUE(ticket->wait());
  const auto now = ticket->progress();
  EXPECT_EQ(now.bytes_done, bytes);
  EXPECT_EQ(now.bytes_total, bytes);
  EXPECT_EQ(now.pieces_done, pieces);
  EXPECT_EQ(now.pieces_total, pieces);
  EXPECT_FALSE(now.running);
  EXPECT_EQ(ticket->ready_up_to(), begin + bytes);
  EXPECT_TRUE(ticket->ready(at(begin), bytes));
  EXPECT_FALSE(ticket->failure());

  auto lease = ticket->take();
  ASSERT_TRUE(lease) << describe(lease.error());
  EXPECT_EQ(lease->where(), (range{begin, begin + bytes}));
  EXPECT_EQ(lease->pieces(), pieces);
  EXPECT_EQ(free_.cache.statistics().leases_now, pieces);
  EXPECT_EQ(ticket->wait().error().code, errc::closed);
  EXPECT_EQ(ticket->take().error().code, errc::closed);
  EXPECT_EQ(ticket->ready_up_to(), 0U);
}

TEST_F(background, R65_take_does_not_disturb_calls_of_other_threads) {
  for (int i = 0; i < (sanitized ? 20 : 60); ++i) {
    auto ticket = free_.cache.register_in_background(at(begin), bytes, local_access, small);
    ASSERT_TRUE(ticket);
    ASSERT_TRUE(ticket->wait());
    std::atomic<int> taken{0};
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < 2; ++thread) {
      threads.emplace_back([&] {
        auto done = ticket->wait();
        while (done) done = ticket->wait();
        EXPECT_EQ(done.error().code, errc::closed);
      });
      threads.emplace_back([&] {
        while (ticket->progress().pieces_total != 0) static_cast<void>(ticket->ready(at(begin), bytes));
        EXPECT_EQ(ticket->renew().error().code, errc::closed);
      });
      threads.emplace_back([&] {
        const auto lease = ticket->take();
        EXPECT_TRUE(lease ? lease->pieces() == pieces : lease.error().code == errc::closed);
        taken += lease ? 1 : 0;
      });
    }
    threads.clear();
    EXPECT_EQ(taken, 1);
    EXPECT_EQ(free_.cache.statistics().leases_now, 0U);
  }
}

TEST_F(background, R65_part_that_is_ready_can_be_used_while_the_rest_is_registered) {
  local_fixture<gated_registrar> f;
  {
    auto ticket = f.cache.register_in_background(at(begin), bytes, local_access, {.piece_bytes = piece, .workers = 1});
    ASSERT_TRUE(ticket);
    EXPECT_EQ(ticket->ready_up_to(), begin);
    EXPECT_EQ(ticket->acquire(at(begin), 1).error().code, errc::timed_out);
    EXPECT_EQ(ticket->wait_until_ready(begin + 1, 10ms).error().code, errc::timed_out);
    gated_registrar::may_open = 3;
    ASSERT_TRUE(ticket->wait_until_ready(begin + 3 * piece, 60s));
    EXPECT_EQ(ticket->ready_up_to(), begin + 3 * piece);
    EXPECT_TRUE(ticket->ready(at(begin), 3 * piece));
    EXPECT_FALSE(ticket->ready(at(begin), 3 * piece + 1));
    EXPECT_TRUE(ticket->progress().running);
    EXPECT_EQ(ticket->take().error().code, errc::timed_out);
    EXPECT_EQ(ticket->wait_for(1ms).error().code, errc::timed_out);

    auto lease = ticket->acquire(at(begin + 5), piece);
    ASSERT_TRUE(lease);
    EXPECT_EQ(lease->where(), (range{begin + 5, begin + 5 + piece}));
    EXPECT_EQ(lease->piece(1).held.data(), at(begin + piece));
    const auto parts = ticket->list(at(begin + piece - 1), 2);
    ASSERT_TRUE(parts);
    ASSERT_EQ(parts->size(), 2U);
    EXPECT_EQ(parts->front().bytes, 1U);
    EXPECT_EQ(f.device->now().at(parts->back().registration.key).memory.begin, begin + piece);
    gated_registrar::may_open = 1000;
    ASSERT_TRUE(ticket->wait());
    EXPECT_TRUE(ticket->take()->release());
    EXPECT_TRUE(lease->piece(0).held) << "it outlives the ticket";
    EXPECT_EQ(f.cache.statistics().leases_now, 2U);
  }
  f.expect_sound();
}

TEST_F(background, R65_requests_outside_of_the_ticket_are_refused) {
  auto ticket = free_.cache.register_in_background(at(begin), bytes, local_access, small);
  ASSERT_TRUE(ticket);
  ASSERT_TRUE(ticket->wait());
  EXPECT_EQ(ticket->acquire(at(begin - 1), 2).error().code, errc::invalid_range);
  EXPECT_EQ(ticket->acquire(at(begin + bytes), 1).error().code, errc::invalid_range);
  EXPECT_EQ(ticket->acquire(at(begin), bytes + 1).error().code, errc::invalid_range);
  EXPECT_EQ(ticket->acquire(at(begin), 0).error().code, errc::invalid_range);
  EXPECT_EQ(ticket->list(at(begin), SIZE_MAX).error().code, errc::invalid_range);
  EXPECT_EQ(ticket->wait_until_ready(begin + bytes + 1, 1s).error().code, errc::invalid_range);
  EXPECT_TRUE(ticket->wait_until_ready(0, 0s));
}

TEST_F(background, R65_bad_requests_are_refused_before_anything_is_registered) {
  auto& cache = free_.cache;
  free_.device->limits.supported = local_access;
  EXPECT_EQ(cache.register_in_background(at(begin), 0).error().code, errc::invalid_range);
  EXPECT_EQ(cache.register_in_background(at(begin), bytes, access_flags::none).error().code, errc::invalid_argument);
  EXPECT_EQ(cache.register_in_background(at(begin), bytes, access_flags::remote_read).error().code, errc::unsupported);
  EXPECT_EQ(cache.register_in_background(at(begin), bytes, local_access, {.piece_bytes = 0}).error().code,
            errc::invalid_argument);
  EXPECT_EQ(cache.register_in_background(std::span<const range>()).error().code, errc::invalid_range);
  const std::array<range, 2> wrong{range{begin, begin + 1}, range{begin + 1, begin}};
  EXPECT_EQ(cache.register_in_background(wrong).error().code, errc::invalid_range);
  EXPECT_EQ(cache.register_in_background(static_cast<const void*>(at(begin)), 1, local_access).error().code,
            errc::invalid_argument);
  EXPECT_EQ(free_.device->calls, 0U);
  local_fixture tight({.max_bytes = bytes - 1});
  EXPECT_EQ(tight.cache.register_in_background(at(begin), bytes, local_access, small).error().code,
            errc::larger_than_budget);
}

TEST_F(background, R65_several_ranges_are_joined_and_registered_in_order) {
  const std::array<range, 4> asked{range{begin, begin + piece}, range{begin + 8 * piece, begin + 11 * piece},
                                   range{begin + 10 * piece, begin + 12 * piece},
                                   range{begin + 4 * piece, begin + 6 * piece}};
  for (const auto order : {background_order::as_given, background_order::largest_first}) {
    local_fixture f;
    auto ticket =
        f.cache.register_in_background(asked, local_access, {.piece_bytes = piece, .workers = 1, .order = order});
    ASSERT_TRUE(ticket);
    ASSERT_TRUE(ticket->wait());
    std::vector<std::uintptr_t> opened;
    for (const auto& [key, one] : f.device->now()) opened.push_back((one.memory.begin - begin) / piece);
    const auto expected = order == background_order::as_given ? std::vector<std::uintptr_t>{0, 8, 9, 10, 11, 4, 5}
                                                              : std::vector<std::uintptr_t>{8, 9, 10, 11, 4, 5, 0};
    EXPECT_EQ(opened, expected);
    EXPECT_EQ(ticket->ready_up_to(), begin + piece) << "behind it is a gap";
    EXPECT_EQ(ticket->wait_until_ready(begin + 2 * piece, 1s).error().code, errc::invalid_range);
    EXPECT_EQ(ticket->acquire(at(begin), 5 * piece).error().code, errc::invalid_range);
    EXPECT_TRUE(ticket->acquire(at(begin + 8 * piece), 4 * piece));
    auto all = ticket->take();
    ASSERT_TRUE(all);
    EXPECT_EQ(all->where(), (range{begin, begin + 12 * piece}));
    EXPECT_EQ(all->bytes(), 7 * piece);
  }
}

TEST_F(background, R65_first_failure_is_kept_with_its_native_code_and_range) {
  free_.device->fail_opens([](const range& memory, access_flags) -> std::optional<error> {
    if (memory.begin != begin + 3 * piece) return std::nullopt;
    return error{errc::driver_error, native_kind::posix, 5, "no"};
  });
  auto ticket =
      free_.cache.register_in_background(at(begin), bytes, local_access, {.piece_bytes = piece, .workers = 1});
  ASSERT_TRUE(ticket);
  EXPECT_EQ(ticket->wait().error().native, 5);
  ASSERT_TRUE(ticket->failure());
  EXPECT_EQ(ticket->failure()->why.native, 5);
  EXPECT_EQ(ticket->failure()->where, (range{begin + 3 * piece, begin + 4 * piece}));
  EXPECT_EQ(ticket->ready_up_to(), begin + 3 * piece);
  EXPECT_EQ(ticket->acquire(at(begin + 3 * piece), 1).error().native, 5);
  EXPECT_EQ(ticket->take().error().native, 5);
  EXPECT_EQ(ticket->wait_until_ready(begin + bytes, 1s).error().native, 5);
  EXPECT_TRUE(ticket->acquire(at(begin), 3 * piece)) << "the part before it is ready";

  free_.device->fail_opens({});
  ASSERT_TRUE(ticket->renew());
  EXPECT_TRUE(ticket->wait());
  EXPECT_FALSE(ticket->failure());
  EXPECT_EQ(free_.device->opened, pieces) << "only what was missing";
}

TEST_F(background, R65_driver_that_says_closed_has_failed_and_the_cache_has_not_ended) {
  free_.device->fail_opens([](const range& memory, access_flags) -> std::optional<error> {
    if (memory.begin != begin + 3 * piece) return std::nullopt;
    return error{errc::closed, native_kind::posix, 5, "the device was closed"};
  });
  auto ticket =
      free_.cache.register_in_background(at(begin), bytes, local_access, {.piece_bytes = piece, .workers = 1});
  ASSERT_TRUE(ticket);
  EXPECT_EQ(ticket->wait().error().native, 5);
  ASSERT_TRUE(ticket->failure());
  EXPECT_EQ(ticket->failure()->where, (range{begin + 3 * piece, begin + 4 * piece}));
  free_.device->fail_opens({});
  ASSERT_TRUE(ticket->renew());
  EXPECT_TRUE(ticket->wait());
}

TEST_F(background, R65_cancel_keeps_what_is_registered) {
  local_fixture<gated_registrar> f;
  auto ticket = f.cache.register_in_background(at(begin), bytes, local_access, {.piece_bytes = piece, .workers = 1});
  ASSERT_TRUE(ticket);
  gated_registrar::may_open = 2;
  ASSERT_TRUE(ticket->wait_until_ready(begin + 2 * piece, 60s));
  ASSERT_TRUE(soon([] { return gated_registrar::waiting == 1; }));
  std::jthread later([&] {  // before the ticket is cancelled, the worker would go on to a fourth piece
    EXPECT_TRUE(soon([&] { return ticket->acquire(at(begin + bytes - 1), 1).error().code == errc::closed; }));
    ++gated_registrar::may_open;
  });
  EXPECT_TRUE(ticket->cancel(cancel_policy::keep));
  EXPECT_EQ(ticket->progress().pieces_done, 3U) << "the piece that was being registered is finished";
  EXPECT_FALSE(ticket->progress().running);
  EXPECT_EQ(ticket->wait().error().code, errc::closed);
  EXPECT_EQ(ticket->acquire(at(begin + bytes - 1), 1).error().code, errc::closed);
  EXPECT_TRUE(ticket->acquire(at(begin), 3 * piece));
  EXPECT_EQ(f.cache.statistics().leases_now, 3U);

  gated_registrar::may_open = 1000;
  EXPECT_TRUE(ticket->renew()) << "the registration goes on";
  EXPECT_TRUE(ticket->wait());
  EXPECT_TRUE(ticket->cancel(cancel_policy::give_back));
  EXPECT_EQ(f.cache.statistics().leases_now, 0U);
  EXPECT_EQ(ticket->ready_up_to(), begin);
  EXPECT_TRUE(f.cache.flush());
  EXPECT_EQ(f.device->open_count(), 0U);
}

TEST_F(background, R65_cancel_does_not_wait_for_a_driver_that_hangs) {
  local_fixture<gated_registrar> f({.wait_timeout = 20ms});
  {
    auto ticket = f.cache.register_in_background(at(begin), bytes, local_access, {.piece_bytes = piece, .workers = 1});
    ASSERT_TRUE(ticket);
    ASSERT_TRUE(soon([] { return gated_registrar::waiting == 1; }));
    EXPECT_EQ(ticket->cancel(cancel_policy::give_back).error().code, errc::timed_out);
  }
  gated_registrar::may_open = 1;
  EXPECT_TRUE(soon([&] { return f.device->opened == 1; }));
  EXPECT_TRUE(soon([&] { return f.cache.statistics().leases_now == 0; })) << "the thread gives back what it registered";
}

TEST_F(background, R65_close_that_fails_is_returned_by_cancel) {
  local_fixture f({.retain = false});
  auto ticket = f.cache.register_in_background(at(begin), bytes, local_access, small);
  ASSERT_TRUE(ticket);
  ASSERT_TRUE(ticket->wait());
  f.device->fail_closes(1);
  EXPECT_EQ(ticket->cancel(cancel_policy::give_back).error().native, 5);
  EXPECT_TRUE(f.cache.flush());
  EXPECT_EQ(f.device->open_count(), 0U);
}

TEST_F(background, R65_destroyed_ticket_gives_back) {
  for (int i = 0; i < 50; ++i) {
    auto ticket = free_.cache.register_in_background(at(begin), bytes, local_access, small);
    ASSERT_TRUE(ticket);
    if (i % 2 == 0) std::this_thread::yield();
  }
  EXPECT_EQ(free_.cache.statistics().leases_now, 0U);
  free_.expect_sound();
}

TEST_F(background, R65_stale_pieces_are_refused_and_alone_renewed) {
  auto ticket = free_.cache.register_in_background(at(begin), bytes, local_access, small);
  ASSERT_TRUE(ticket);
  ASSERT_TRUE(ticket->wait());
  EXPECT_TRUE(ticket->stale()->empty());
  free_.invalidate(begin + piece + 5, begin + piece + 6);
  free_.invalidate(begin + 9 * piece - 1, begin + 9 * piece + 1);
  EXPECT_EQ(ticket->acquire(at(begin + piece), 1).error().code, errc::stale_handle);
  EXPECT_FALSE(ticket->ready(at(begin), bytes));
  EXPECT_TRUE(ticket->ready(at(begin), piece));
  const auto stale = ticket->stale();
  ASSERT_TRUE(stale);
  ASSERT_EQ(stale->size(), 3U);
  EXPECT_EQ(stale->front(), (range{begin + piece, begin + 2 * piece}));
  EXPECT_EQ(ticket->take().error().code, errc::stale_handle);

  ASSERT_TRUE(ticket->renew());
  ASSERT_TRUE(ticket->wait());
  EXPECT_EQ(free_.device->opened, pieces + 3);
  EXPECT_TRUE(ticket->ready(at(begin), bytes));
  EXPECT_TRUE(ticket->take());
}

/// A registrar whose closes of one piece take long.
struct slow_to_close : fake_registrar {
  using fake_registrar::fake_registrar;
  [[nodiscard]] result<void> close(const registration_type& made) noexcept {
    if (const auto open = device_->now().at(made.key); open.memory.begin == begin) std::this_thread::sleep_for(20ms);
    return fake_registrar::close(made);
  }
};

TEST_F(background, R65_renew_closes_stale_pieces_before_a_running_thread_registers_them) {
  local_fixture<slow_to_close> f;
  f.device->refuses_overlaps = true;
  f.device->call_takes = 2ms;
  auto ticket = f.cache.register_in_background(at(begin), bytes, local_access, small);
  ASSERT_TRUE(ticket);
  ASSERT_TRUE(ticket->wait_until_ready(begin + 2 * piece, 60s));
  f.invalidate(begin, begin + piece + 1);
  ASSERT_TRUE(ticket->renew());
  const auto done = ticket->wait();
  EXPECT_TRUE(done) << describe(done.error());
  EXPECT_EQ(f.device->opened, pieces + 2);
  EXPECT_TRUE(ticket->ready(at(begin), bytes));
}

TEST_F(background, R65_events_that_no_request_has_seen_yet_are_noticed) {
  for (int what = 0; what < 5; ++what) {
    local_fixture f;
    auto ticket = f.cache.register_in_background(at(begin), bytes, local_access, small);
    ASSERT_TRUE(ticket);
    ASSERT_TRUE(ticket->wait());
    announce_gone(at(begin + piece), 1);
    switch (what) {
      case 0: EXPECT_EQ(ticket->acquire(at(begin), bytes).error().code, errc::stale_handle); break;
      case 1: EXPECT_FALSE(ticket->ready(at(begin + piece), 1)); break;
      case 2: EXPECT_EQ(ticket->stale()->size(), 1U); break;
      case 3: EXPECT_EQ(ticket->take().error().code, errc::stale_handle); break;
      default:
        EXPECT_TRUE(ticket->renew());
        EXPECT_TRUE(ticket->wait());
        EXPECT_EQ(f.device->opened, pieces + 1);
    }
  }
}

TEST_F(background, R65_invalidation_during_a_registration_is_noticed) {
  local_fixture<gated_registrar> f;
  auto ticket = f.cache.register_in_background(at(begin), bytes, local_access, {.piece_bytes = piece, .workers = 1});
  ASSERT_TRUE(ticket);
  ASSERT_TRUE(soon([] { return gated_registrar::waiting == 1; }));
  f.invalidate(begin, begin + 1);
  gated_registrar::may_open = 1000;
  ASSERT_TRUE(ticket->wait());
  EXPECT_TRUE(ticket->ready(at(begin), bytes)) << "the engine registers a piece again that was invalidated meanwhile";
  EXPECT_EQ(f.device->opened, pieces + 1);
}

TEST_F(background, R65_progress_rises_to_all_bytes_on_one_thread_at_a_time) {
  std::atomic<int> inside{0};
  std::vector<std::size_t> told;
  std::optional<background_registration<fake_registrar>> ticket;
  std::atomic<bool> here{false};
  background_options how{.piece_bytes = piece, .workers = 4};
  how.progress = [&](std::size_t done, std::size_t total) {
    EXPECT_EQ(++inside, 1);
    EXPECT_EQ(total, bytes);
    told.push_back(done);
    while (!here) std::this_thread::yield();
    EXPECT_EQ(ticket->wait().error().code, errc::invalid_argument) << "it would wait for itself";
    EXPECT_GE(ticket->progress().bytes_done, done);
    --inside;
  };
  ticket = free_.cache.register_in_background(at(begin), bytes, local_access, how).value();
  here = true;
  ASSERT_TRUE(ticket->wait());
  ASSERT_FALSE(told.empty());
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_EQ(told.back(), bytes);
}

TEST_F(background, R65_callback_may_cancel_and_destroy_the_ticket) {
  std::optional<background_registration<fake_registrar>> ticket;
  std::atomic<bool> here{false};
  std::atomic<bool> gone{false};
  background_options how{.piece_bytes = piece, .workers = 2};
  how.progress = [&](std::size_t, std::size_t) {
    while (!here) std::this_thread::yield();
    EXPECT_TRUE(ticket->cancel(cancel_policy::give_back));
    ticket.reset();
    gone = true;
  };
  ticket = free_.cache.register_in_background(at(begin), bytes, local_access, how).value();
  here = true;
  EXPECT_TRUE(soon([&] { return gone.load(); }));
  EXPECT_TRUE(soon([&] { return free_.cache.statistics().leases_now == 0; }));
}

TEST_F(background, R65_callback_that_throws_ends_the_registration) {
  background_options how{.piece_bytes = piece, .workers = 1};
  how.progress = [](std::size_t, std::size_t) { throw 1; };
  auto ticket = free_.cache.register_in_background(at(begin), bytes, local_access, how);
  ASSERT_TRUE(ticket);
  EXPECT_EQ(ticket->wait().error().code, errc::invalid_argument);
  EXPECT_TRUE(ticket->failure()->where.empty());
  EXPECT_EQ(ticket->progress().pieces_done, 1U);
}

TEST_F(background, R65_destroyed_cache_stops_the_workers) {
  std::optional<local_fixture<>> f;
  f.emplace(cache_options{.drain_timeout = 0ms});
  f->device->call_takes = 50ms;  // 25 s for all pieces, so that the cache ends before them
  auto device = f->device;
  auto ticket = f->cache.register_in_background(at(begin), 1000 * piece, local_access, small);
  ASSERT_TRUE(ticket);
  ASSERT_TRUE(ticket->wait_until_ready(begin + piece, 60s));
  f.reset();
  EXPECT_EQ(ticket->wait().error().code, errc::closed);
  EXPECT_EQ(ticket->acquire(at(begin), 1).error().code, errc::closed);
  EXPECT_EQ(ticket->renew().error().code, errc::closed);
  EXPECT_EQ(ticket->stale().error().code, errc::closed);
  EXPECT_EQ(ticket->take().error().code, errc::closed);
  EXPECT_EQ(ticket->wait_until_ready(begin + 1000 * piece, 60s).error().code, errc::closed);
  EXPECT_TRUE(ticket->cancel(cancel_policy::give_back));
  EXPECT_EQ(device->open_count(), 0U);
}

TEST_F(background, R65_cache_that_ends_during_a_driver_call_leaves_nothing_open) {
  const auto device = std::make_shared<fake_device>();
  std::optional<cache<gated_registrar>> cache;
  cache.emplace(gated_registrar(device), keeping({.drain_timeout = 0ms}));
  auto ticket = cache->register_in_background(at(begin), bytes, local_access, {.piece_bytes = piece, .workers = 2});
  ASSERT_TRUE(ticket);
  gated_registrar::may_open = 2;
  ASSERT_TRUE(soon([&] { return ticket->progress().pieces_done == 2 && gated_registrar::waiting == 2; }));
  cache.reset();
  EXPECT_EQ(device->open_count(), 0U);
  EXPECT_GT(device.use_count(), 1) << "the registrar lives until the driver's calls return";
  EXPECT_EQ(ticket->wait_for(1ms).error().code, errc::timed_out);
  gated_registrar::may_open = 2;
  EXPECT_EQ(ticket->wait().error().code, errc::closed);
  EXPECT_EQ(device->opened, 4U);
  EXPECT_EQ(device->open_count(), 0U) << "what was opened after the end is closed";
  {
    const auto last = *std::move(ticket);
  }
  EXPECT_EQ(device.use_count(), 1) << "the ticket was the last that needed the engine";
  EXPECT_EQ(device->misuses, 0U);
}

TEST_F(background, R42_driver_is_not_asked_again_after_the_end_of_the_cache) {
  const auto device = std::make_shared<fake_device>();
  std::optional<cache<gated_registrar>> cache;
  cache.emplace(gated_registrar(device), keeping({.drain_timeout = 0ms}));
  auto ticket = cache->register_in_background(at(begin), bytes, local_access, {.piece_bytes = piece, .workers = 1});
  ASSERT_TRUE(ticket);
  ASSERT_TRUE(soon([] { return gated_registrar::waiting == 1; }));
  cache->invalidate(at(begin), 1);
  cache.reset();
  gated_registrar::may_open = 1000;
  EXPECT_EQ(ticket->wait().error().code, errc::closed);
  EXPECT_EQ(device->opened, 1U) << "the piece that was invalidated during its open is not opened again";
  EXPECT_EQ(device->open_count(), 0U);
}

// Ends a cache while a request waits, for at most `patience`, for another request's open. Returns false if this thread
// was so late that the wait may have been over before.
bool cache_ends_during_a_wait(std::chrono::milliseconds patience) {
  gated_registrar::may_open = gated_registrar::waiting = 0;
  const auto device = std::make_shared<fake_device>();
  std::optional<cache<gated_registrar>> cache;
  cache.emplace(gated_registrar(device),
                keeping({.merge = merge_policy::overlaps, .wait_timeout = patience, .drain_timeout = 0ms}));
  auto slow = cache->register_in_background(at(begin), piece);
  EXPECT_TRUE(slow && soon([] { return gated_registrar::waiting == 1; }));
  const auto start = std::chrono::steady_clock::now();
  auto waits = cache->register_in_background(at(begin + piece / 2), piece);
  // A request that has waited in vain opens by itself.
  EXPECT_TRUE(waits &&
              soon([&] { return cache->statistics().requests_waiting == 1 || gated_registrar::waiting == 2; }));
  cache.reset();
  const bool in_time = std::chrono::steady_clock::now() - start < patience;
  if (in_time) {
    EXPECT_EQ(waits->wait_for(60s).error().code, errc::closed);
    EXPECT_EQ(gated_registrar::waiting, 1);
  }
  gated_registrar::may_open = 1000;
  static_cast<void>(slow->wait());
  static_cast<void>(waits->wait());
  EXPECT_TRUE(slow->cancel(cancel_policy::give_back));
  if (in_time) {
    EXPECT_EQ(device->opened, 1U);
  }
  EXPECT_EQ(device->open_count(), 0U);
  return in_time;
}

TEST_F(background, R42_request_that_waited_in_vain_for_another_opens_nothing_after_the_end) {
  EXPECT_TRUE(cache_ends_during_a_wait(100ms) || cache_ends_during_a_wait(1s) || cache_ends_during_a_wait(10s))
      << "this machine is too busy";
}

TEST_F(background, R42_request_that_waited_for_room_opens_nothing_after_the_end) {
  const auto device = std::make_shared<fake_device>();
  std::optional<local_fixture<>> f;
  f.emplace(cache_options{.max_count = 1, .full = when_full::wait, .full_timeout = 60s, .drain_timeout = 0ms}, device);
  auto lease = f->acquire(0x1000, 0x2000);
  ASSERT_TRUE(lease);
  auto waits = f->cache.register_in_background(at(begin), piece);
  ASSERT_TRUE(waits);
  ASSERT_TRUE(soon([&] { return f->cache.statistics().requests_waiting == 1; }));
  f.reset();
  EXPECT_TRUE(lease->release());
  EXPECT_EQ(waits->wait_for(60s).error().code, errc::closed);
  EXPECT_EQ(device->opened, 1U);
  EXPECT_EQ(device->open_count(), 0U);
}

TEST_F(background, R65_moved_cache_goes_on) {
  local_fixture<gated_registrar> f;
  auto ticket = f.cache.register_in_background(at(begin), bytes, local_access, small);
  ASSERT_TRUE(ticket);
  auto moved = std::move(f.cache);
  gated_registrar::may_open = 1000;
  EXPECT_TRUE(ticket->wait());
  EXPECT_TRUE(moved.find(at(begin), piece));
  EXPECT_EQ(f.cache.register_in_background(at(begin), bytes).error().code, errc::closed);
  f.cache = std::move(moved);
}

TEST_F(background, R37_child_finds_the_ticket_closed_and_never_waits) {
  local_fixture<gated_registrar> f;
  auto ticket = f.cache.register_in_background(at(begin), bytes, local_access, small);
  ASSERT_TRUE(ticket);
  std::jthread waits([&] { EXPECT_TRUE(ticket->wait()); });  // the child has its wait, but not the thread
  std::this_thread::sleep_for(20ms);
  child_process child([&](line&) {
    if (ticket->wait().error().code != errc::closed) return 1;
    if (ticket->acquire(at(begin), 1).error().code != errc::closed) return 2;
    if (ticket->cancel(cancel_policy::give_back).error().code != errc::closed) return 3;
    if (ticket->ready_up_to() != 0 || ticket->progress().running) return 4;
    {
      const auto dying = *std::move(ticket);
    }
    return 0;
  });
  EXPECT_EQ(child.finish(), 0);
  gated_registrar::may_open = 1000;
  waits.join();
  EXPECT_EQ(ticket->progress().pieces_done, pieces);
}

TEST_F(background, R37_fork_at_any_moment_leaves_parent_and_child_sound) {
  local_fixture f;
  f.device->call_takes = 20us;
  auto ticket = f.cache.register_in_background(at(begin), 100 * piece, local_access, small);
  ASSERT_TRUE(ticket);
  std::jthread busy([&](const std::stop_token& stop) {  // so that the mutex is often locked
    while (!stop.stop_requested()) {
      static_cast<void>(ticket->ready(at(begin), piece));
      static_cast<void>(ticket->wait_for(1ms));
    }
  });
  for (int i = 0; i < (sanitized ? 10 : 60); ++i) {
    child_process child([&](line&) {
      if (ticket->wait_for(1ms).error().code != errc::closed) return 1;
      if (ticket->ready(at(begin), 1) || ticket->failure()) return 2;
      if (ticket->renew().error().code != errc::closed || ticket->take().error().code != errc::closed) return 3;
      if (f.cache.register_in_background(at(begin), 1).error().code != errc::closed) return 4;
      if (f.cache.acquire_large(at(begin), 1).error().code != errc::closed) return 5;
      const auto dying = *std::move(ticket);
      return 0;
    });
    ASSERT_EQ(child.finish(), 0) << "fork " << i;
    static_cast<void>(ticket->cancel(cancel_policy::give_back));
    ASSERT_TRUE(ticket->renew());
  }
  EXPECT_TRUE(ticket->wait());
  EXPECT_TRUE(ticket->ready(at(begin), 100 * piece));
}

TEST_F(background, R65_cache_that_keeps_nothing_registers_for_the_ticket_alone) {
  const auto device = std::make_shared<fake_device>();
  cache none(fake_registrar(device), {.monitor = monitor_choice::none});
  auto ticket = none.register_in_background(at(begin), bytes, local_access, small);
  ASSERT_TRUE(ticket);
  ASSERT_TRUE(ticket->wait());
  auto part = ticket->acquire(at(begin), piece);
  ASSERT_TRUE(part);
  auto other = none.acquire_large(at(begin), bytes, local_access, {.piece_bytes = piece});
  ASSERT_TRUE(other);
  EXPECT_EQ(device->open_count(), 2 * pieces) << "nothing is shared";
  EXPECT_TRUE(ticket->cancel(cancel_policy::give_back));
  EXPECT_EQ(device->open_count(), 1 + pieces) << "the lease of its own keeps its piece";
  EXPECT_TRUE(part->release());
  EXPECT_TRUE(other->release());
  EXPECT_EQ(device->open_count(), 0U);
}

TEST_F(background, R65_workers_wait_for_room_as_any_request) {
  local_fixture f({.max_count = pieces, .full = when_full::wait, .full_timeout = 60s});
  std::vector<decltype(f.acquire(begin, begin + 1))> others;
  for (std::size_t i = 0; i < 4; ++i) others.push_back(f.acquire(0x1000 * (i + 1), 0x1000 * (i + 1) + 1));
  auto ticket = f.cache.register_in_background(at(begin), bytes, local_access, small);
  ASSERT_TRUE(ticket);
  ASSERT_TRUE(soon([&] { return ticket->progress().pieces_done == pieces - 4; }));
  EXPECT_EQ(ticket->wait_for(10ms).error().code, errc::timed_out);
  others.clear();
  EXPECT_TRUE(ticket->wait());
}

TEST_F(background, R65_hits_are_not_registered_again) {
  free_.touch(begin, begin + bytes);
  auto ticket = free_.cache.register_in_background(at(begin), bytes, local_access, small);
  ASSERT_TRUE(ticket);
  ASSERT_TRUE(ticket->wait());
  EXPECT_EQ(free_.device->opened, 1U);
  EXPECT_EQ(ticket->list(at(begin), bytes)->size(), pieces);
}

TEST_F(background, R65_without_room_for_a_thread_nothing_is_registered) {
  if (sanitized) GTEST_SKIP() << "the sanitizer needs the address space for itself";
  const room_for_threads none(0);
  const auto ticket = free_.cache.register_in_background(at(begin), bytes, local_access, small);
  ASSERT_FALSE(ticket);
  EXPECT_EQ(ticket.error().code, errc::out_of_resources);
  EXPECT_EQ(free_.device->calls, 0U);
  EXPECT_TRUE(free_.cache.acquire_large(at(begin), bytes, local_access, {.piece_bytes = piece}))
      << "the caller's thread is enough";
}

}  // namespace
}  // namespace pinfold::testing::background_test
