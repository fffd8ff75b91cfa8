// SPDX-License-Identifier: BSD-3-Clause
// The hits' table, compared with a list.
#include "index/hit_table.hpp"
#include "support/host/settings.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <vector>

namespace pinfold::testing {
namespace {

using detail::record;
using index::hit_table;

/// A record as in a page, with the part that imported memory needs.
struct alignas(32) some_record {
  record one;
  detail::imported_part beside;
};

struct records {
  std::vector<some_record> all;

  explicit records(std::size_t count) : all(count) {}
  record* make(std::size_t number, range where, peer_id peer = {}) {
    made = std::max(made, number + 1);
    all[number].one.begin = where.begin;
    all[number].one.end = where.end;
    all[number].beside.peer = peer;
    return &all[number].one;
  }
  /// Puts a few records into the larger table, as far as any are left.
  void move(hit_table& table, std::size_t most) {
    table.move(most, [&]() -> record* { return moved < made ? &all[moved++].one : nullptr; });
  }

  std::size_t made = 0;
  std::size_t moved = 0;
};

/// Makes room for one more record, as the engine does.
void grow(hit_table& table, records& from) {
  if (table.growing()) from.move(table, 16);
  const auto step = table.wants();
  if (step == 0) return;
  table.grow(hit_table::memory(step));
  from.moved = 0;
}

record* found(const hit_table& table, range wanted, peer_id peer = {}) {
  return table.find(peer, wanted, [&](const record* one) { return one->covered().contains(wanted); });
}

TEST(hit_table, table_without_memory_is_empty) {
  hit_table table(false);
  records some(1);
  EXPECT_EQ(found(table, {0, 1}), nullptr);
  EXPECT_FALSE(table.insert(some.make(0, {0, 1})));
  grow(table, some);
  EXPECT_TRUE(table.insert(&some.all[0].one));
  EXPECT_EQ(found(table, {0, 1}), &some.all[0].one);
  EXPECT_GT(table.bytes(), 0U);
}

TEST(hit_table, finds_any_part_of_a_range_of_any_size_and_address) {
  const std::uintptr_t sizes[] = {1, 2, 63, 64, 65, 4095, 4096, 65536, 100'000, std::uintptr_t{5} << 30U};
  const std::uintptr_t places[] = {
      0, 1, 63, 4096, 0x7fffffff, 0x7fff'ffff'f000, UINTPTR_MAX - (std::uintptr_t{5} << 30U)};
  for (const auto size : sizes)
    for (const auto place : places) {
      hit_table table(false);
      records some(1);
      grow(table, some);
      const range all{place, place + size};
      ASSERT_TRUE(table.insert(some.make(0, all)));
      for (const auto at : {std::uintptr_t{0}, size / 3, size / 2, size - 1}) {
        EXPECT_NE(found(table, {place + at, place + at + 1}), nullptr) << size << " at " << place << ", byte " << at;
        EXPECT_NE(found(table, {place + at, place + size}), nullptr) << size << " at " << place << ", from " << at;
      }
      table.erase(&some.all[0].one);
      EXPECT_EQ(found(table, all), nullptr);
    }
}

TEST(hit_table, peers_do_not_find_each_others_records) {
  hit_table table(true);
  records some(2);
  grow(table, some);
  ASSERT_TRUE(table.insert(some.make(0, {4096, 8192}, {1})));
  EXPECT_EQ(found(table, {4096, 8192}, {2}), nullptr);
  ASSERT_TRUE(table.insert(some.make(1, {4096, 8192}, {2})));
  EXPECT_EQ(found(table, {4096, 8192}, {2}), &some.all[1].one);
  EXPECT_EQ(found(table, {4096, 8192}, {1}), &some.all[0].one);
}

TEST(hit_table, too_many_records_in_one_place_are_refused) {
  hit_table table(false);
  records some(200);
  std::size_t listed = 0;
  for (std::size_t i = 0; i < some.all.size(); ++i) {
    grow(table, some);
    if (table.insert(some.make(i, {0x10000 + i, 0x18000 + i}))) ++listed;
  }
  EXPECT_GE(listed, 16U);
  EXPECT_LT(listed, some.all.size()) << "a look-up must not walk over hundreds";
  for (auto& one : some.all)
    if (one.one.is(record::listed)) table.erase(&one.one);
  EXPECT_EQ(found(table, {0x10100, 0x10200}), nullptr);
}

// Returns addresses as malloc chooses them, so that most ranges have two places in the table.
range some_buffer(std::size_t number) {
  const std::uintptr_t begin = 0x7f00'0000'0010 + number * 0x11010;
  return {begin, begin + 0x10000};
}

TEST(hit_table, large_tables_grow_by_half_up_to_two_slots_per_record) {
  constexpr std::size_t count = 100'000;
  hit_table table(false);
  records some(count);
  std::size_t listed = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto before = table.bytes();
    grow(table, some);
    const auto most = before < std::size_t{128} << 10U ? 2 * before : before + before / 2;
    EXPECT_LE(table.bytes(), std::max<std::size_t>(most, 4096)) << i;
    listed += table.insert(some.make(i, some_buffer(i))) ? 1U : 0U;
  }
  EXPECT_GE(listed, count - count / 1000);
  EXPECT_LE(table.bytes(), 32 * count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto where = some_buffer(i);
    const bool in = some.all[i].one.is(record::listed);
    EXPECT_EQ(found(table, where), in ? &some.all[i].one : nullptr);
    EXPECT_EQ(found(table, {where.end - 1, where.end}), in ? &some.all[i].one : nullptr);
  }
}

// Other records are cold, so erasing must not read them. Here their contents are wrong meanwhile: a table that read
// them would move them to places where they are not found.
TEST(hit_table, erasing_reads_no_other_record) {
  for (const std::size_t count : {150U, 250U, 1000U, 1500U}) {  // sizes of both kinds
    hit_table table(false);
    records some(count);
    std::vector<std::size_t> in;
    for (std::size_t i = 0; i < count; ++i) {
      grow(table, some);
      if (table.insert(some.make(i, some_buffer(i)))) in.push_back(i);
    }
    std::mt19937_64 random(test_seed());
    std::shuffle(in.begin(), in.end(), random);
    while (!in.empty()) {
      for (const auto i : in) some.make(i, some_buffer(i + 7777));
      const auto gone = in.back();
      in.pop_back();
      table.erase(some.make(gone, some_buffer(gone)));
      for (const auto i : in) some.make(i, some_buffer(i));
      ASSERT_EQ(found(table, some_buffer(gone)), nullptr);
      if (in.size() % 10 != 0) continue;
      for (const auto i : in) ASSERT_EQ(found(table, some_buffer(i)), &some.all[i].one) << i << " of " << count;
    }
  }
}

// Nested, overlapping and neighbouring ranges are inserted and erased; the table finds every listed range, and nothing
// else.
TEST(hit_table, agrees_with_a_list) {
  std::mt19937_64 random(test_seed());
  hit_table table(false);
  records some(4000);
  std::set<std::size_t> in;
  for (int step = 0; step < 40'000; ++step) {
    const auto number = random() % some.all.size();
    if (in.erase(number) != 0) {
      table.erase(&some.all[number].one);
      ASSERT_FALSE(some.all[number].one.is(record::listed));
      continue;
    }
    const std::uintptr_t begin = 0x10000 + random() % 1'000'000 * (random() % 2 == 0 ? 1 : 4096);
    const bool growing = table.growing();
    grow(table, some);
    if (growing)  // in another order, some may be too many in one place
      std::erase_if(in, [&](auto i) { return !some.all[i].one.is(record::listed); });
    if (table.insert(some.make(number, {begin, begin + 1 + random() % (random() % 2 == 0 ? 64 : 200'000)})))
      in.insert(number);
    ASSERT_EQ(some.all[number].one.is(record::listed), in.contains(number));
  }
  EXPECT_GT(in.size(), 1000U);
  for (const auto number : in) {
    const auto where = some.all[number].one.covered();
    const auto* got = found(table, where);
    ASSERT_NE(got, nullptr);
    EXPECT_TRUE(got->is(record::listed));
  }
  std::size_t seen = 0;
  for (int i = 0; i < 10'000; ++i) {
    const std::uintptr_t begin = 0x10000 + random() % 1'000'000 * 4096;
    if (const auto* got = found(table, {begin, begin + 1})) {
      EXPECT_TRUE(got->is(record::listed));
      ++seen;
    }
  }
  std::printf("%zu of 10000 random bytes are in a range\n", seen);
}

}  // namespace
}  // namespace pinfold::testing
