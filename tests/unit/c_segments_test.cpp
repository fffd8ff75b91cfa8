// SPDX-License-Identifier: BSD-3-Clause
// The C interface over memory that grows in segments.
#include "support/fixtures/c_fixture.hpp"

#include <pinfold/importers/memfd.hpp>
#include <pinfold/segments.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace pinfold::testing::c_segments_test {
namespace {

constexpr std::size_t page = 65536;  // whole pages of every machine
constexpr std::uint64_t peer = 7;

std::uint64_t number_of(pinfold_cache* cache, std::uint64_t pinfold_statistics::* counter) {
  pinfold_statistics now{};
  now.size = sizeof now;
  EXPECT_EQ(pinfold_statistics_of(cache, &now), PINFOLD_OK);
  return now.*counter;
}

/// Leases as `pinfold_acquire_segments` stores them.
struct held {
  int code = PINFOLD_OK;
  std::vector<pinfold_lease> leases;
  std::vector<pinfold_range> where;
  std::size_t made = 99;

  void expect_nothing() const {
    EXPECT_EQ(made, 0U);
    for (const auto& one : leases) EXPECT_EQ(one.pin, 0U);
  }
};

/// Asks with leases that hold other bytes before.
held acquire(pinfold_cache* cache, const void* handles, std::size_t handle_bytes, std::size_t count,
             std::uint64_t address, std::size_t bytes) {
  held got;
  got.leases.assign(count, {77, nullptr});
  got.where.resize(count);
  got.code = pinfold_acquire_segments(cache, peer, handles, handle_bytes, count, address, bytes, got.leases.data(),
                                      got.where.data(), &got.made);
  return got;
}

class c_segments : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(pinfold_memfd_exporter_create(0, &exporter), PINFOLD_OK);
    ASSERT_EQ(pinfold_memfd_reserve(exporter, 16 * page, &memory), PINFOLD_OK);
    ASSERT_EQ(pinfold_create_memfd(0, nullptr, &cache), PINFOLD_OK);
    data = static_cast<char*>(pinfold_memfd_segments_data(memory));
    first = reinterpret_cast<std::uintptr_t>(data);
  }
  void TearDown() override {
    EXPECT_EQ(pinfold_destroy(cache), PINFOLD_OK);
    pinfold_memfd_segments_free(memory);
    pinfold_memfd_exporter_destroy(exporter);
  }

  memfd_handle add(std::size_t number, std::size_t pages, const char* text) {
    memfd_handle made;
    EXPECT_EQ(pinfold_memfd_segment_add(memory, number * page, pages * page, &made, sizeof made), PINFOLD_OK);
    std::strcpy(data + number * page, text);
    return made;
  }
  /// Three segments of 1, 2 and 1 pages, side by side.
  std::vector<memfd_handle> add_three() { return {add(0, 1, "zero"), add(1, 2, "one"), add(3, 1, "three")}; }

  held acquire(const std::vector<memfd_handle>& handles, std::uint64_t address, std::size_t bytes) {
    return c_segments_test::acquire(cache, handles.data(), sizeof(memfd_handle), handles.size(), address, bytes);
  }
  std::vector<memfd_handle> listed(std::size_t offset, std::size_t bytes, std::size_t room, std::size_t& count) {
    std::vector<memfd_handle> all(room);
    EXPECT_EQ(pinfold_memfd_segments_handles(memory, offset, bytes, all.data(), sizeof all[0], room, &count),
              PINFOLD_OK);
    return all;
  }

  pinfold_memfd_exporter* exporter = nullptr;
  pinfold_memfd_segments* memory = nullptr;
  pinfold_cache* cache = nullptr;
  char* data = nullptr;
  std::uint64_t first = 0;
};

TEST_F(c_segments, handles_under_a_range_are_listed_by_address) {
  const auto three = add_three();
  std::size_t count = 0;
  EXPECT_EQ(listed(0, 4 * page, 3, count), three);
  EXPECT_EQ(count, 3U);
  EXPECT_EQ(listed(2 * page, page + 1, 2, count), (std::vector{three[1], three[2]}));
  EXPECT_EQ(count, 2U);
  EXPECT_EQ(listed(0, 4 * page, 1, count), std::vector{three[0]}) << "no more than there is room for";
  EXPECT_EQ(count, 3U);
  EXPECT_EQ(pinfold_memfd_segments_handles(memory, 0, 4 * page, nullptr, sizeof(memfd_handle), 0, &count), PINFOLD_OK);
  EXPECT_EQ(count, 3U);
}

TEST_F(c_segments, bad_lists_of_handles_are_refused) {
  const auto three = add_three();
  std::array<memfd_handle, 4> room{};
  std::size_t count = 99;
  const auto list = [&](std::size_t offset, std::size_t bytes, void* to = nullptr, std::size_t length = 72,
                        std::size_t places = 0) {
    return pinfold_memfd_segments_handles(memory, offset, bytes, to, length, places, &count);
  };
  EXPECT_EQ(list(0, page, nullptr, sizeof room[0], 1), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(list(0, page, room.data(), sizeof room[0] - 1, 1), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(count, 99U);
  for (const auto& [offset, bytes] : {std::pair{4 * page, page},
                                      {3 * page, 2 * page},
                                      {page, SIZE_MAX},
                                      {SIZE_MAX, page},
                                      {17 * page, page},
                                      {page, std::size_t{0}}}) {
    EXPECT_EQ(list(offset, bytes, room.data(), sizeof room[0], 4), PINFOLD_E_INVALID_RANGE) << offset;
    EXPECT_EQ(count, 0U);
  }
  EXPECT_EQ(pinfold_memfd_segments_handles(nullptr, 0, 1, nullptr, 72, 0, &count), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_memfd_segments_handles(memory, 0, 1, nullptr, 72, 0, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(room[0], memfd_handle{});
  EXPECT_EQ(three.size(), 3U);
}

TEST_F(c_segments, all_segments_under_a_range_are_leased) {
  auto handles = add_three();
  handles.push_back(add(8, 1, "elsewhere"));
  std::reverse(handles.begin(), handles.end());
  const auto got = acquire(handles, first + 2, 3 * page);
  ASSERT_EQ(got.code, PINFOLD_OK) << pinfold_last_error()->message;
  ASSERT_EQ(got.made, 3U);
  EXPECT_EQ(got.where[0].base, first + 2);
  EXPECT_EQ(got.where[0].bytes, page - 2);
  EXPECT_EQ(got.where[1].base, first + page);
  EXPECT_EQ(got.where[1].bytes, 2 * page);
  EXPECT_EQ(got.where[2].base, first + 3 * page);
  EXPECT_EQ(got.where[2].bytes, 2U);
  EXPECT_STREQ(static_cast<char*>(got.leases[0].data), "ro");
  EXPECT_STREQ(static_cast<char*>(got.leases[1].data), "one");
  EXPECT_EQ(got.leases[3].pin, 0U);
  EXPECT_EQ(pinfold_release_batch(got.leases.data(), got.made), PINFOLD_OK);
  EXPECT_EQ(number_of(cache, &pinfold_statistics::opens), 3U);
}

TEST_F(c_segments, only_what_changed_is_opened_again) {
  auto handles = add_three();
  auto got = acquire(handles, first, 4 * page);
  EXPECT_EQ(pinfold_release_batch(got.leases.data(), got.made), PINFOLD_OK);
  ASSERT_EQ(pinfold_memfd_segment_remove(memory, page, 2 * page), PINFOLD_OK);
  handles[1] = add(1, 2, "another");
  got = acquire(handles, first, 4 * page);
  ASSERT_EQ(got.code, PINFOLD_OK) << pinfold_last_error()->message;
  EXPECT_STREQ(static_cast<char*>(got.leases[1].data), "another");
  EXPECT_EQ(pinfold_release_batch(got.leases.data(), got.made), PINFOLD_OK);
  EXPECT_EQ(number_of(cache, &pinfold_statistics::opens), 4U);
}

TEST_F(c_segments, a_segment_that_fails_leaves_no_lease) {
  const auto handles = add_three();
  ASSERT_EQ(pinfold_memfd_segment_remove(memory, 3 * page, page), PINFOLD_OK);
  const auto got = acquire(handles, first, 4 * page);
  EXPECT_EQ(got.code, PINFOLD_E_STALE_HANDLE);
  got.expect_nothing();
  EXPECT_EQ(number_of(cache, &pinfold_statistics::leases_now), 0U);
}

TEST_F(c_segments, what_does_not_fit_together_is_refused_before_an_open) {
  const auto three = add_three();
  auto damaged = three;
  damaged[2].size += page;
  const std::vector<std::pair<std::vector<memfd_handle>, int>> cases{
      {{three[0], three[2]}, PINFOLD_E_INVALID_RANGE},
      {{three[1], three[2]}, PINFOLD_E_INVALID_RANGE},
      {{three[0], three[1]}, PINFOLD_E_INVALID_RANGE},
      {{}, PINFOLD_E_INVALID_RANGE},
      {{three[0], three[1], three[1], three[2]}, PINFOLD_E_INVALID_HANDLE},
      {damaged, PINFOLD_E_INVALID_HANDLE},
  };
  for (const auto& [handles, code] : cases) {
    const auto got = acquire(handles, first, 4 * page);
    EXPECT_EQ(got.code, code);
    got.expect_nothing();
  }
  EXPECT_EQ(acquire(three, first, 0).code, PINFOLD_E_INVALID_RANGE);
  EXPECT_EQ(acquire(three, UINT64_MAX - 1, 4).code, PINFOLD_E_INVALID_RANGE);
  EXPECT_EQ(number_of(cache, &pinfold_statistics::opens), 0U);
}

TEST_F(c_segments, bad_input_is_refused) {
  const auto three = add_three();
  pinfold_lease leases[3];
  std::size_t made = 0;
  const auto with = [&](pinfold_cache* of, const void* handles, std::size_t length, std::size_t count,
                        pinfold_lease* to, std::size_t* number) {
    return pinfold_acquire_segments(of, peer, handles, length, count, first, page, to, nullptr, number);
  };
  EXPECT_EQ(with(nullptr, three.data(), 72, 3, leases, &made), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(with(cache, nullptr, 72, 3, leases, &made), PINFOLD_E_INVALID_HANDLE);
  EXPECT_EQ(with(cache, three.data(), 71, 3, leases, &made), PINFOLD_E_INVALID_HANDLE);
  EXPECT_EQ(with(cache, three.data(), 72, 3, nullptr, &made), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(with(cache, three.data(), 72, 3, leases, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  const c_fixture local;
  EXPECT_EQ(with(local.cache, three.data(), 72, 3, leases, &made), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(with(cache, three.data(), 72, 3, leases, &made), PINFOLD_OK) << "without a place for the ranges";
  EXPECT_EQ(made, 1U);
  EXPECT_EQ(pinfold_release(leases[0]), PINFOLD_OK);
}

/// An importer in C whose handles have an odd length, and whose opens fail when they are told to.
struct odd_world {
  static constexpr std::size_t handle_bytes = 17;
  std::array<char, 4096> memory{};
  int opens = 0;
  int closes = 0;
  int refused = 0;  ///< the number of the open that fails
  pinfold_cache* cache = nullptr;
  int from_callback = PINFOLD_OK;

  static std::string handle(std::uint64_t base, std::uint64_t bytes) {
    std::string made(handle_bytes, '!');
    std::memcpy(made.data(), &base, 8);
    std::memcpy(made.data() + 8, &bytes, 8);
    return made;
  }
  static int check(void*, const void* handle, std::uint64_t* base, std::uint64_t* bytes) {
    std::memcpy(base, handle, 8);
    std::memcpy(bytes, static_cast<const char*>(handle) + 8, 8);
    return PINFOLD_OK;
  }
  static int open(void* self, const pinfold_open_request* what, pinfold_imported* made, pinfold_error* failure) {
    auto& own = *static_cast<odd_world*>(self);
    pinfold_lease lease{};
    std::size_t count = 0;
    own.from_callback =
        pinfold_acquire_segments(own.cache, peer, what->handle, handle_bytes, 1, 1, 1, &lease, nullptr, &count);
    if (++own.opens == own.refused) {
      failure->native = 42;
      failure->native_kind = PINFOLD_NATIVE_POSIX;
      return PINFOLD_E_DRIVER_ERROR;
    }
    made->data = own.memory.data();
    return check(self, what->handle, &made->base, &made->bytes);
  }
  static int close(void* self, const pinfold_registration*, pinfold_error*) {
    ++static_cast<odd_world*>(self)->closes;
    return PINFOLD_OK;
  }
  [[nodiscard]] static pinfold_importer table() {
    pinfold_importer calls{};
    calls.size = sizeof calls;
    calls.name = "odd";
    calls.handle_bytes = handle_bytes;
    calls.check = check;
    calls.open = open;
    calls.close = close;
    return calls;
  }
};

TEST(c_segments_of_an_importer_in_c, each_refused_open_leaves_no_lease) {
  odd_world world;
  const auto table = odd_world::table();
  ASSERT_EQ(pinfold_create_import(&table, &world, nullptr, &world.cache), PINFOLD_OK);
  std::string handles = "?";  // so that all handles are at odd addresses
  for (std::uint64_t one = 1; one <= 4; ++one) handles += odd_world::handle(one * 0x1000, 0x1000);
  const auto ask = [&] { return acquire(world.cache, handles.data() + 1, odd_world::handle_bytes, 4, 0x1000, 0x4000); };
  for (world.refused = 1; world.refused <= 4; ++world.refused) {
    world.opens = 0;
    const auto got = ask();
    EXPECT_EQ(got.code, PINFOLD_E_DRIVER_ERROR) << world.refused;
    EXPECT_EQ(pinfold_last_error()->native, 42);
    EXPECT_EQ(world.from_callback, PINFOLD_E_IN_USE_CONFLICT) << "it could wait for the call that it is in";
    got.expect_nothing();
    EXPECT_EQ(number_of(world.cache, &pinfold_statistics::leases_now), 0U);
    EXPECT_EQ(pinfold_drop_peer(world.cache, peer), PINFOLD_OK);
    EXPECT_EQ(world.closes, world.refused * (world.refused - 1) / 2) << "each segment that was opened";
  }
  world.refused = 0;
  const auto got = ask();
  EXPECT_EQ(got.code, PINFOLD_OK);
  EXPECT_EQ(got.made, 4U);
  EXPECT_EQ(pinfold_release_batch(got.leases.data(), got.made), PINFOLD_OK);
  EXPECT_EQ(pinfold_destroy(world.cache), PINFOLD_OK);
}

}  // namespace
}  // namespace pinfold::testing::c_segments_test
