// SPDX-License-Identifier: BSD-3-Clause
// Long ranges piece by piece (R25).
#include "support/fixtures/local_fixture.hpp"
#include "support/host/room_for_threads.hpp"
#include "support/processes/child_process.hpp"

#include <chrono>
#include <cstddef>
#include <optional>
#include <thread>
#include <unistd.h>

namespace pinfold::testing::chunks_test {
namespace {

using namespace std::chrono_literals;

TEST(chunks, R25_chunks_come_in_order_and_cover_the_range) {
  local_fixture f;
  f.device->limits.max_bytes = 0x3000;
  auto stream = f.cache.acquire_chunks(reinterpret_cast<void*>(0x10000), 0x10000, local_access,
                                       {.chunk_bytes = 0x4000, .depth = 3, .workers = 2});
  ASSERT_TRUE(stream);
  EXPECT_EQ(stream->size(), 6U) << "clipped to the registrar's largest";
  std::uintptr_t expected = 0x10000;
  while (!stream->done()) {
    auto chunk = stream->next();
    ASSERT_TRUE(chunk) << describe(chunk.error());
    EXPECT_EQ(chunk->where.begin, expected);
    EXPECT_TRUE(f.device->now().at(chunk->held.registration().key).memory.contains(chunk->where));
    expected = chunk->where.end;
  }
  EXPECT_EQ(expected, 0x20000U);
  EXPECT_EQ(stream->next().error().code, errc::closed);
}

TEST(chunks, R25_unaligned_ranges_are_cut_so_that_whole_pages_fit) {
  constexpr std::size_t gib = std::size_t{1} << 30U;
  local_fixture f;
  f.device->limits.granularity = 0x1000;
  f.device->limits.max_bytes = gib;
  auto stream = f.cache.acquire_chunks(reinterpret_cast<void*>(0x100123), 3 * gib, local_access,
                                       {.chunk_bytes = gib, .workers = 2});
  ASSERT_TRUE(stream);
  EXPECT_EQ(stream->size(), 4U);
  std::uintptr_t expected = 0x100123;
  while (!stream->done()) {
    auto chunk = stream->next();
    ASSERT_TRUE(chunk) << describe(chunk.error());
    EXPECT_EQ(chunk->where.begin, expected);
    expected = chunk->where.end;
    EXPECT_TRUE(expected % 0x1000 == 0 || stream->done()) << "no page is registered twice";
  }
  EXPECT_EQ(expected, 0x100123 + 3 * gib);
  f.expect_sound();
}

TEST(chunks, R25_chunks_with_remote_rights_are_cut_exactly) {
  local_fixture f;
  f.device->limits.granularity = 0x1000;
  f.device->limits.max_bytes = 0x2000;
  auto stream = f.cache.acquire_chunks(reinterpret_cast<void*>(0x10123), 0x4000, access_flags::remote_read);
  ASSERT_TRUE(stream);
  EXPECT_EQ(stream->size(), 2U);
  for (const std::uintptr_t end : {0x12123U, 0x14123U}) {
    auto chunk = stream->next();
    ASSERT_TRUE(chunk) << describe(chunk.error());
    EXPECT_EQ(chunk->where.end, end);
  }
}

TEST(chunks, R25_chunk_size_below_a_page_still_covers_the_range) {
  local_fixture f;
  f.device->limits.granularity = 0x1000;
  auto stream = f.cache.acquire_chunks(reinterpret_cast<void*>(0x10700), 0x1000, local_access, {.chunk_bytes = 0x400});
  ASSERT_TRUE(stream);
  std::size_t bytes = 0;
  while (!stream->done()) bytes += stream->next()->where.size();
  EXPECT_EQ(bytes, 0x1000U);
  EXPECT_EQ(f.device->opened, 2U) << "two pages";
}

TEST(chunks, R25_later_chunks_are_registered_while_the_reader_works) {
  local_fixture f;
  auto stream = f.cache.acquire_chunks(reinterpret_cast<void*>(0x10000), 0x10000, local_access,
                                       {.chunk_bytes = 0x1000, .depth = 4});
  auto first = stream->next();
  for (int i = 0; i < 60'000 && f.device->opened < 5; ++i) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(f.device->opened, 5U) << "the one that was read, and four ahead";
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(f.device->opened, 5U) << "and no more";
}

TEST(chunks, R25_abandoned_stream_holds_no_lease) {
  local_fixture f;
  {
    auto stream = f.cache.acquire_chunks(reinterpret_cast<void*>(0x10000), 0x100000, local_access,
                                         {.chunk_bytes = 0x1000, .depth = 8, .workers = 3});
    auto first = stream->next();
  }
  EXPECT_EQ(f.cache.statistics().leases_now, 0U);
  f.expect_sound();
}

TEST(chunks, R25_failure_is_returned_for_its_own_chunk) {
  local_fixture f;
  f.device->fail_opens([](const range& memory, access_flags) -> std::optional<error> {
    if (memory.begin < 0x13000) return std::nullopt;
    return error{errc::driver_error, native_kind::posix, 5, "no"};
  });
  auto stream =
      f.cache.acquire_chunks(reinterpret_cast<void*>(0x10000), 0x10000, local_access, {.chunk_bytes = 0x1000});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(stream->next());
  EXPECT_EQ(stream->next().error().native, 5);
  EXPECT_EQ(stream->next().error().code, errc::closed);
}

TEST(chunks, R25_failure_of_the_last_chunk_ends_the_stream) {
  local_fixture f;
  f.device->fail_opens([](const range& memory, access_flags) -> std::optional<error> {
    if (memory.begin < 0x11000) return std::nullopt;
    return error{errc::driver_error, native_kind::posix, 5, "no"};
  });
  auto stream = f.cache.acquire_chunks(reinterpret_cast<void*>(0x10000), 0x2000, local_access, {.chunk_bytes = 0x1000});
  EXPECT_TRUE(stream->next());
  EXPECT_EQ(stream->next().error().native, 5);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(stream->next().error().code, errc::closed);
}

/// A registrar that refuses the chunk at 0x11000, once the two behind it are registered.
struct late_refusal : fake_registrar {
  using fake_registrar::fake_registrar;
  [[nodiscard]] result<registration_type> open(range memory, access_flags access) noexcept {
    if (memory.begin != 0x11000) return fake_registrar::open(memory, access);
    while (device_->opened < 3) std::this_thread::yield();
    return fail_errno(errc::driver_error, 5, "no");
  }
};

TEST(chunks, R56_stream_returns_no_lease_after_a_failure) {
  local_fixture<late_refusal> f;
  {
    auto stream = f.cache.acquire_chunks(reinterpret_cast<void*>(0x10000), 0x4000, local_access,
                                         {.chunk_bytes = 0x1000, .depth = 4, .workers = 2});
    ASSERT_TRUE(stream);
    EXPECT_TRUE(stream->next());
    EXPECT_EQ(stream->next().error().native, 5);
    EXPECT_TRUE(stream->done());
    for (int i = 0; i < 4; ++i) {
      const auto later = stream->next();
      ASSERT_FALSE(later) << "a lease on " << std::hex
                          << f.device->now().at(later->held.registration().key).memory.begin << " for the chunk at "
                          << later->where.begin;
      EXPECT_EQ(later.error().code, errc::closed);
    }
  }
  EXPECT_EQ(f.cache.statistics().leases_now, 0U);
  f.expect_sound();
}

TEST(chunks, R25_stream_works_with_fewer_threads_than_requested) {
  if (sanitized) GTEST_SKIP() << "the sanitizer needs the address space for itself";
  local_fixture f;
  const auto stream_of = [&] {
    return f.cache.acquire_chunks(reinterpret_cast<void*>(0x10000), 0x10000, local_access,
                                  {.chunk_bytes = 0x1000, .workers = 4});
  };
  {
    const room_for_threads one(1);
    auto stream = stream_of();
    ASSERT_TRUE(stream) << describe(stream.error());
    while (!stream->done()) ASSERT_TRUE(stream->next());
  }
  const room_for_threads none(0);
  EXPECT_EQ(stream_of().error().code, errc::out_of_resources);
  EXPECT_EQ(f.cache.statistics().leases_now, 0U);
}

TEST(chunks, R59_range_of_too_many_pieces_is_refused_at_once) {
  local_fixture f;
  constexpr std::size_t absurd = std::size_t{1} << 46U;
  for (const auto each : {std::size_t{1}, std::size_t{4096}, std::size_t{2} << 20U}) {
    const auto stream =
        f.cache.acquire_chunks(reinterpret_cast<void*>(0x10000), absurd, local_access, {.chunk_bytes = each});
    ASSERT_FALSE(stream) << each;
    EXPECT_EQ(stream.error().code, errc::too_large) << each;
  }
  EXPECT_EQ(f.device->calls, 0U);
}

TEST(chunks, R37_forked_child_may_destroy_its_copy_of_a_stream) {
  local_fixture f;
  std::optional made = f.cache.acquire_chunks(reinterpret_cast<void*>(0x10000), 0x10000, local_access,
                                              {.chunk_bytes = 0x1000, .depth = 2, .workers = 2});
  ASSERT_TRUE(*made);
  child_process child([&](line&) {
    ::alarm(60);
    if ((*made)->next().error() != errc::closed) return 1;
    made.reset();
    return 0;
  });
  EXPECT_EQ(child.finish(), 0);
  for (; !(*made)->done();) EXPECT_TRUE((*made)->next());
}

TEST(chunks, moved_from_stream_is_done) {
  local_fixture f;
  auto stream = f.cache.acquire_chunks(reinterpret_cast<void*>(0x10000), 0x3000, local_access, {.chunk_bytes = 0x1000});
  ASSERT_TRUE(stream && stream->next());
  auto rest = std::move(*stream);
  EXPECT_TRUE(stream->done());
  EXPECT_EQ(stream->next().error().code, errc::closed);
  EXPECT_TRUE(rest.next());
}

}  // namespace
}  // namespace pinfold::testing::chunks_test
