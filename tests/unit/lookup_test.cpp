// SPDX-License-Identifier: BSD-3-Clause
// What a look-up finds, and what it must not find: R1-R5, R48, and bad input.
#include "support/fixtures/cache_checks.hpp"

namespace pinfold::testing::lookup_test {
namespace {

TEST(lookup, R1_lease_points_to_the_requested_address) {
  fake_fixture f;
  const auto handle = f.world->allocate(1, 0x10000, 4096);
  auto whole = f.acquire(handle);
  ASSERT_TRUE(whole) << describe(whole.error());
  auto inner = f.cache.acquire({1}, handle, 0x10000 + 512, 8);
  ASSERT_TRUE(inner);
  EXPECT_EQ(static_cast<std::byte*>(inner->data()) - static_cast<std::byte*>(whole->data()), 512);
  EXPECT_EQ(serial_at(inner->data()), handle.serial);
  EXPECT_EQ(f.cache.statistics().opens, 1U);
}

TEST(lookup, R1_entry_covers_the_opened_range) {
  fake_fixture f;
  const auto handle = f.world->allocate(1, 0x10000, 4096);
  ASSERT_TRUE(f.cache.acquire({1}, handle, 0x10800, 16));
  const auto listed = f.cache.dump();
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_EQ(listed[0].covered, handle.allocation());
  EXPECT_TRUE(f.cache.find({1}, handle, 0x10000, 4096));
}

TEST(lookup, R2_addresses_are_keyed_byte_exactly) {
  fake_fixture f;
  const auto odd = f.world->allocate(1, 0x10003, 64);
  const auto next = f.world->allocate(1, 0x10003 + 64, 64);
  f.touch(odd);
  f.touch(next);
  EXPECT_EQ(f.cache.statistics().opens, 2U);
  EXPECT_EQ(f.cache.dump()[0].covered, (range{0x10003, 0x10003 + 64}));
}

TEST(lookup, R3_peers_never_find_each_others_entries) {
  fake_fixture f;
  const auto mine = f.world->allocate(1, 0x10000, 4096);
  const auto theirs = f.world->allocate(2, 0x10000, 4096);
  f.touch(mine);
  EXPECT_FALSE(f.find(theirs));
  f.touch(theirs);
  f.touch(mine);
  const auto now = f.cache.statistics();
  EXPECT_EQ(now.opens, 2U);
  EXPECT_EQ(now.hits, 1U);
  EXPECT_EQ(now.invalid, 0U);
}

TEST(lookup, R3_dropped_peer_loses_idle_entries_at_once_and_leased_ones_at_release) {
  fake_fixture f;
  const auto idle = f.world->allocate(1, 0x10000, 64);
  const auto used = f.world->allocate(1, 0x20000, 64);
  const auto other = f.world->allocate(2, 0x10000, 64);
  f.touch(idle);
  f.touch(other);
  auto lease = f.acquire(used);
  ASSERT_TRUE(lease);
  f.world->kill(1);
  EXPECT_TRUE(f.cache.drop_peer({1}));
  EXPECT_EQ(f.world->open_count(), 2U);
  EXPECT_EQ(serial_at(lease->data()), used.serial);
  EXPECT_TRUE(lease->stale());
  EXPECT_FALSE(f.find(idle));
  EXPECT_EQ(f.acquire(idle).error().code, errc::peer_gone);
  EXPECT_TRUE(lease->release());
  EXPECT_EQ(f.world->open_count(), 1U);
  f.touch(other);
  EXPECT_EQ(f.cache.statistics().hits, 1U);
  f.expect_sound();
}

TEST(lookup, R4_different_token_makes_the_entry_stale_and_opens_again) {
  fake_fixture f;
  const auto old = f.world->allocate(1, 0x10000, 4096);
  f.touch(old);
  const auto fresh = f.world->allocate(1, 0x10000, 4096);
  f.touch(fresh);
  const auto now = f.cache.statistics();
  EXPECT_EQ(now.invalid, 1U);
  EXPECT_EQ(now.misses_invalidated, 1U);
  EXPECT_EQ(now.conflicts, 0U) << "found by its token, before the driver had to refuse";
  EXPECT_EQ(f.world->open_count(), 1U);
  f.expect_sound();
}

TEST(lookup, R4_every_byte_of_the_token_is_compared) {
  fake_fixture f;
  const auto real = f.world->allocate(1, 0x10000, 4096);
  f.touch(real);
  for (std::size_t byte = 8; byte < 16; ++byte) {  // the serial: another base or size would not be found at all
    auto forged = real;
    reinterpret_cast<unsigned char*>(&forged)[byte] ^= 0x80U;
    EXPECT_FALSE(f.find(forged)) << "byte " << byte;
    f.touch(real);
  }
  EXPECT_EQ(f.cache.statistics().invalid, 8U);
}

TEST(lookup, R4_find_compares_the_token) {
  fake_fixture f;
  const auto old = f.world->allocate(1, 0x10000, 4096);
  f.touch(old);
  const auto fresh = f.world->allocate(1, 0x10000, 4096);
  EXPECT_FALSE(f.find(fresh));
  EXPECT_EQ(f.cache.statistics().invalid, 1U);
  EXPECT_FALSE(f.find(old)) << "the old entry is stale now";
  EXPECT_EQ(f.world->closes, 0U) << "find never calls the driver";
  EXPECT_TRUE(f.cache.progress());
  EXPECT_EQ(f.world->open_count(), 0U);
}

TEST(lookup, R5_stale_entry_stays_usable_for_its_leases) {
  fake_fixture f;
  const auto old = f.world->allocate(1, 0x10000, 4096);
  auto first = f.acquire(old);
  auto second = f.acquire(old);
  ASSERT_TRUE(first && second);
  f.cache.invalidate({1}, old.allocation());
  EXPECT_FALSE(f.find(old)) << "it has left the index";
  EXPECT_TRUE(first->stale());
  EXPECT_TRUE(first->release());
  EXPECT_EQ(serial_at(second->data()), old.serial);
  EXPECT_EQ(f.world->open_count(), 1U);
  EXPECT_TRUE(second->release());
  EXPECT_EQ(f.world->open_count(), 0U) << "closed by its last release";
  f.expect_sound();
}

TEST(lookup, R5_new_allocation_over_a_stale_lease_is_refused_without_harm) {
  fake_fixture f;
  const auto old = f.world->allocate(1, 0x10000, 4096);
  auto lease = f.acquire(old);
  const auto fresh = f.world->allocate(1, 0x10000, 4096);
  auto refused = f.acquire(fresh);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, errc::in_use_conflict);
  EXPECT_EQ(refused.error().native, 208) << "the driver's own code";
  EXPECT_EQ(serial_at(lease->data()), old.serial);
  EXPECT_TRUE(lease->release());
  f.touch(fresh);
  f.expect_sound();
}

TEST(lookup, R5_deferred_closes_wait_for_progress) {
  fake_fixture f({.closes = close_policy::deferred});
  const auto old = f.world->allocate(1, 0x10000, 4096);
  auto lease = f.acquire(old);
  f.cache.invalidate({1}, old.allocation());
  EXPECT_TRUE(lease->release());
  EXPECT_EQ(f.world->closes, 0U);
  EXPECT_TRUE(f.cache.progress());
  EXPECT_EQ(f.world->open_count(), 0U);
}

TEST(lookup, R48_find_returns_a_counted_lease_in_every_mode) {
  for (const bool retain : {true, false}) {
    fake_fixture f({.retain = retain});
    const auto handle = f.world->allocate(1, 0x10000, 4096);
    EXPECT_FALSE(f.find(handle));
    auto lease = f.acquire(handle);
    auto found = f.find(handle);
    ASSERT_TRUE(found);
    EXPECT_EQ(f.cache.statistics().leases_now, 2U);
    EXPECT_TRUE(lease->release());
    EXPECT_EQ(serial_at(found->data()), handle.serial) << "held by the found lease alone";
    EXPECT_TRUE(found->release());
    EXPECT_EQ(static_cast<bool>(f.find(handle)), retain);
    const auto now = f.cache.statistics();
    EXPECT_EQ(now.found, retain ? 2U : 1U);
    EXPECT_EQ(now.find_misses, retain ? 1U : 2U);
  }
}

TEST(lookup, bad_input_changes_nothing) {
  fake_fixture f;
  const auto handle = f.world->allocate(1, 0x10000, 4096);
  f.touch(handle);
  const auto code = [&](const fake_handle& h, std::uintptr_t address, std::size_t bytes) {
    return f.cache.acquire({1}, h, address, bytes).error().code;
  };
  EXPECT_EQ(code(handle, 0x10000, 0), errc::invalid_range);
  EXPECT_EQ(code(handle, UINTPTR_MAX - 10, 100), errc::invalid_range);
  EXPECT_EQ(code(handle, 0x10000, 4097), errc::invalid_range);
  EXPECT_EQ(code(handle, 0x10000 - 1, 16), errc::invalid_range);
  EXPECT_EQ(code(fake_handle{1, 0, 0x10000, 4096}, 0x10000, 4096), errc::invalid_handle);
  EXPECT_FALSE(f.cache.find({1}, handle, 0x10000, 0));
  EXPECT_EQ(f.world->opens, 1U);
  EXPECT_TRUE(f.find(handle)) << "what was cached is still cached";
}

}  // namespace
}  // namespace pinfold::testing::lookup_test
