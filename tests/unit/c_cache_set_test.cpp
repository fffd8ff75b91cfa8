// SPDX-License-Identifier: BSD-3-Clause
// Acquires from several caches, and remote keys, in C.
#include "support/fixtures/c_fixture.hpp"

#include <pinfold/cache_set.h>
#include <pinfold/remote_key.h>

#include <array>
#include <cerrno>
#include <thread>
#include <vector>

namespace pinfold::testing::c_cache_set_test {
namespace {

constexpr std::uintptr_t place = 0x100000;
auto* const memory = reinterpret_cast<void*>(place);
constexpr std::size_t bytes = 0x2000;

struct c_set : ::testing::Test {
  std::array<c_fixture, 3> each;
  std::array<pinfold_cache*, 3> caches{each[0].cache, each[1].cache, each[2].cache};
  std::array<pinfold_lease, 3> leases{};
  std::array<pinfold_error, 3> failures{};
  std::array<std::uint32_t, 3> distances{20, 10, 30};
  pinfold_set_options how{sizeof how, PINFOLD_SET_ALL, 0, 0, nullptr, nullptr};

  int acquire() {
    return pinfold_acquire_set(caches.data(), 3, memory, bytes, c_local_access, &how, leases.data(), failures.data());
  }
  pinfold_lease late(std::size_t which) {
    return pinfold_acquire_late(caches.data(), 3, which, memory, bytes, c_local_access, leases.data());
  }
  void release() {
    EXPECT_EQ(pinfold_release_batch(leases.data(), 3), PINFOLD_OK);
    leases = {};
  }
  void refuse(std::size_t number, int native) {
    each[number].device.device->fail_opens([=](const range&, access_flags) {
      return error{errc::driver_error, native_kind::posix, native, "refused by the test"};
    });
  }
  std::vector<std::size_t> opened() {
    std::vector<std::size_t> all;
    for (const auto& one : each) all.push_back(one.device.device->opened);
    return all;
  }
};

using counts = std::vector<std::size_t>;

TEST_F(c_set, acquires_from_all_or_none) {
  ASSERT_EQ(acquire(), PINFOLD_OK) << pinfold_last_error()->message;
  for (const auto& one : leases) EXPECT_EQ(one.data, memory);
  release();
  for (auto* const one : caches) EXPECT_EQ(pinfold_invalidate(one, memory, bytes), PINFOLD_OK);
  refuse(1, EIO);
  EXPECT_EQ(acquire(), PINFOLD_E_DRIVER_ERROR);
  EXPECT_EQ(pinfold_last_error()->native, EIO);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(leases[i].pin, 0U);
    EXPECT_EQ(each[i].counters().leases_now, 0U);
  }
}

TEST_F(c_set, argument_reaches_each_open) {
  how.argument = &how;
  ASSERT_EQ(acquire(), PINFOLD_OK);
  for (const auto& one : each) EXPECT_EQ(one.device.last_argument, &how);
  release();
}

TEST_F(c_set, partial_success_has_the_reason_of_each_failure) {
  how.required = 1;
  refuse(0, EIO);
  refuse(2, ENODEV);
  ASSERT_EQ(acquire(), PINFOLD_OK);
  EXPECT_EQ(leases[0].pin, 0U);
  EXPECT_NE(leases[1].pin, 0U);
  EXPECT_EQ(failures[0].native, EIO);
  EXPECT_EQ(failures[1].code, PINFOLD_OK);
  EXPECT_EQ(failures[2].native, ENODEV);
  EXPECT_STREQ(failures[2].message, "refused by the test");
  release();
  how.required = 2;
  EXPECT_EQ(acquire(), PINFOLD_E_DRIVER_ERROR);
  EXPECT_EQ(pinfold_last_error()->native, EIO) << "the first that failed";
}

TEST_F(c_set, near_ones_first_and_the_others_late) {
  how.policy = PINFOLD_SET_NEAR_FIRST;
  how.distances = distances.data();
  ASSERT_EQ(acquire(), PINFOLD_OK);
  EXPECT_EQ(opened(), (counts{0, 1, 0}));
  leases[2] = late(2);
  EXPECT_NE(leases[2].pin, 0U) << pinfold_last_error()->message;
  EXPECT_EQ(opened(), (counts{0, 1, 1}));
  for (auto* const one : caches) EXPECT_EQ(pinfold_invalidate(one, memory, bytes), PINFOLD_OK);
  EXPECT_EQ(late(0).pin, 0U);
  EXPECT_EQ(pinfold_last_error()->code, PINFOLD_E_STALE_HANDLE);
  release();
  EXPECT_NE((leases[0] = late(0)).pin, 0U) << "without other leases there is nothing to compare";
  release();
}

TEST_F(c_set, fixed_order_stays_on_this_thread) {
  how.policy = PINFOLD_SET_FIXED_ORDER;
  const auto here = std::this_thread::get_id();
  for (auto& one : each) one.device.in_open = [here] { EXPECT_EQ(std::this_thread::get_id(), here); };
  EXPECT_EQ(acquire(), PINFOLD_OK);
  release();
}

TEST_F(c_set, bad_input_changes_nothing) {
  EXPECT_EQ(pinfold_acquire_set(nullptr, 3, memory, bytes, c_local_access, nullptr, leases.data(), nullptr),
            PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_acquire_set(caches.data(), 0, memory, bytes, c_local_access, nullptr, leases.data(), nullptr),
            PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_acquire_set(caches.data(), 3, memory, bytes, c_local_access, nullptr, nullptr, nullptr),
            PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_acquire_set(caches.data(), 3, memory, bytes, 0, nullptr, leases.data(), nullptr),
            PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_acquire_set(caches.data(), 3, memory, 0, c_local_access, nullptr, leases.data(), nullptr),
            PINFOLD_E_INVALID_RANGE);
  how.required = 4;
  EXPECT_EQ(acquire(), PINFOLD_E_INVALID_ARGUMENT);
  how.required = 0;
  how.policy = 3;
  EXPECT_EQ(acquire(), PINFOLD_E_INVALID_ARGUMENT);
  how.size = 1;
  EXPECT_EQ(acquire(), PINFOLD_E_INVALID_ARGUMENT);
  auto* const kept = caches[1];
  caches[1] = nullptr;
  how = {sizeof how, PINFOLD_SET_ALL, 0, 0, nullptr, nullptr};
  EXPECT_EQ(acquire(), PINFOLD_E_INVALID_ARGUMENT);
  caches[1] = kept;
  EXPECT_EQ(late(3).pin, 0U);
  EXPECT_EQ(pinfold_last_error()->code, PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(opened(), (counts{0, 0, 0}));
}

TEST_F(c_set, a_destroyed_cache_is_a_failure_like_any_other) {
  how.required = 2;
  EXPECT_EQ(pinfold_destroy(each[1].cache), PINFOLD_OK);
  each[1].cache = nullptr;
  ASSERT_EQ(acquire(), PINFOLD_OK);
  EXPECT_EQ(failures[1].code, PINFOLD_E_CLOSED);
  release();
}

TEST(c_remote_key, is_valid_until_it_is_withdrawn) {
  pinfold_remote_keys* keys = nullptr;
  ASSERT_EQ(pinfold_remote_keys_create(4, &keys), PINFOLD_OK);
  pinfold_remote_key token{};
  ASSERT_EQ(pinfold_remote_key_issue(keys, place, bytes, 77, &token), PINFOLD_OK);
  std::array<char, PINFOLD_REMOTE_KEY_WIRE_BYTES> wire{};
  ASSERT_EQ(pinfold_remote_key_encode(&token, wire.data(), wire.size()), PINFOLD_OK);
  pinfold_remote_key read{};
  ASSERT_EQ(pinfold_remote_key_decode(wire.data(), wire.size(), &read), PINFOLD_OK);
  EXPECT_EQ(read.key, 77U);
  EXPECT_EQ(read.address, place);
  std::size_t count = 0;
  const std::uint64_t* words = nullptr;
  ASSERT_EQ(pinfold_remote_keys_words(keys, &words, &count), PINFOLD_OK);
  EXPECT_EQ(count, 4U);
  EXPECT_EQ(pinfold_remote_key_is_current(&read, words, count), 1);
  EXPECT_EQ(pinfold_remote_key_withdraw(keys, &read), PINFOLD_OK);
  EXPECT_EQ(pinfold_remote_key_is_current(&read, words, count), 0);
  EXPECT_EQ(pinfold_remote_key_withdraw(keys, &read), PINFOLD_E_STALE_HANDLE);
  wire[9] ^= 1;
  EXPECT_EQ(pinfold_remote_key_decode(wire.data(), wire.size(), &read), PINFOLD_E_INVALID_HANDLE);
  pinfold_remote_keys_destroy(keys);
}

TEST(c_remote_key, bad_input_changes_nothing) {
  pinfold_remote_keys* keys = nullptr;
  pinfold_remote_key token{};
  std::size_t count = 0;
  char wire[4]{};
  EXPECT_EQ(pinfold_remote_keys_create(0, &keys), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(keys, nullptr);
  EXPECT_EQ(pinfold_remote_keys_create(1, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  const std::uint64_t* words = nullptr;
  EXPECT_EQ(pinfold_remote_keys_words(nullptr, &words, &count), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_remote_key_issue(nullptr, 1, 1, 1, &token), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_remote_key_withdraw(nullptr, &token), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_remote_key_is_current(nullptr, nullptr, 0), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_remote_key_is_current(&token, nullptr, 0), 0);
  EXPECT_EQ(pinfold_remote_key_encode(&token, wire, sizeof wire), PINFOLD_E_INVALID_ARGUMENT);
  EXPECT_EQ(pinfold_remote_key_decode(wire, sizeof wire, &token), PINFOLD_E_INVALID_HANDLE);
  ASSERT_EQ(pinfold_remote_keys_create(1, &keys), PINFOLD_OK);
  EXPECT_EQ(pinfold_remote_key_issue(keys, 1, 0, 1, &token), PINFOLD_E_INVALID_RANGE);
  EXPECT_EQ(pinfold_remote_key_issue(keys, 1, 1, 1, nullptr), PINFOLD_E_INVALID_ARGUMENT);
  pinfold_remote_keys_destroy(keys);
  pinfold_remote_keys_destroy(nullptr);
}

}  // namespace
}  // namespace pinfold::testing::c_cache_set_test
