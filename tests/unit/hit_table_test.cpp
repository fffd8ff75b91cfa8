// SPDX-License-Identifier: BSD-3-Clause
// The hits' table, compared with a list.
#include "index/hit_table.hpp"
#include "support/host/settings.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace pinfold::testing::hit_table_test {
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
    all[number].one.begin = where.begin;
    all[number].one.end = where.end;
    all[number].beside.peer = peer;
    return &all[number].one;
  }
};

/// Makes room for one more record, as the engine does.
void grow(hit_table& table) {
  if (table.growing()) table.move();
  if (const auto step = table.wants(); step != 0) table.grow(hit_table::memory(step));
}

record* found(const hit_table& table, range wanted, peer_id peer = {}) {
  return table.find(peer, wanted, [&](const record* one) { return one->covered().contains(wanted); });
}

/// Whether the table finds this record for a range, whatever others there are.
bool is_found_for(const hit_table& table, const record* which, range wanted, peer_id peer = {}) {
  return table.find(peer, wanted, [&](const record* one) { return one == which; }) != nullptr;
}

/// The same under its first and its last byte; for its whole range, if it is under another key.
bool is_found(const hit_table& table, const record* which) {
  const auto where = which->covered();
  if (which->is(record::listed_as) && !is_found_for(table, which, where)) return false;
  if (which->is(record::listed_alone)) return true;
  return is_found_for(table, which, {where.begin, where.begin + 1}) &&
         is_found_for(table, which, {where.end - 1, where.end});
}

TEST(hit_table, table_without_memory_is_empty) {
  hit_table table(false);
  records some(1);
  EXPECT_EQ(found(table, {0, 1}), nullptr);
  EXPECT_FALSE(table.insert(some.make(0, {0, 1})));
  grow(table);
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
      grow(table);
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
  grow(table);
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
    grow(table);
    if (table.insert(some.make(i, {0x10000, 0x18000}))) ++listed;
  }
  EXPECT_GE(listed, 16U);
  EXPECT_LT(listed, some.all.size()) << "a look-up must not walk over hundreds";
  for (auto& one : some.all)
    if (one.one.is(record::listed)) table.erase(&one.one);
  EXPECT_EQ(found(table, {0x10100, 0x10200}), nullptr);
}

/// Inserts ranges that overlap, and looks each up while the table grows and the others go. A few may find no room,
/// among the many slots of a granule of others.
void expect_ranges_are_found(std::size_t count, range (*nth)(std::size_t), bool imported) {
  const peer_id peer{imported ? 7U : 0U};
  hit_table table(imported);
  records some(count);
  std::vector<std::size_t> in;
  for (std::size_t i = 0; i < count; ++i) {
    grow(table);
    if (!table.insert(some.make(i, nth(i), peer))) continue;
    in.push_back(i);
    const auto earlier = in[in.size() / 2];
    EXPECT_TRUE(is_found_for(table, &some.all[earlier].one, nth(earlier), peer)) << earlier << " of " << i;
  }
  EXPECT_GE(in.size(), count / 16 * 15);
  std::mt19937_64 random(test_seed());
  std::ranges::shuffle(in, random);
  for (const auto i : in) {
    auto* const one = &some.all[i].one;
    EXPECT_TRUE(is_found_for(table, one, nth(i), peer)) << i;
    table.erase(one);
    EXPECT_FALSE(one->is(record::listed | record::listed_as | record::listed_alone));
    EXPECT_FALSE(is_found_for(table, one, nth(i), peer)) << i;
  }
}

TEST(hit_table, ranges_that_overlap_are_also_found_by_their_pages_first_bytes_or_whole_ranges) {
  constexpr std::uintptr_t base = std::uintptr_t{1} << 40U;
  for (const bool imported : {false, true}) {
    expect_ranges_are_found(
        4096, [](std::size_t i) -> range { return {base + i * 4096, base + (i + 256) * 4096}; }, imported);
    expect_ranges_are_found(
        1000, [](std::size_t i) -> range { return {base + i * 64, base + i * 64 + 65536}; }, imported);
    expect_ranges_are_found(1000, [](std::size_t i) -> range { return {base, base + 65536 + i}; }, imported);
  }
}

// Returns addresses as malloc chooses them, so that most ranges have two places in the table.
range some_buffer(std::size_t number) {
  const std::uintptr_t begin = 0x7f00'0000'0010 + number * 0x11010;
  return {begin, begin + 0x10000};
}

TEST(hit_table, tables_double_and_refuse_none_of_the_usual_buffers) {
  constexpr std::size_t count = 100'000;
  hit_table table(false);
  records some(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto before = table.bytes();
    grow(table);
    EXPECT_LE(table.bytes(), std::max<std::size_t>(2 * before, 4096)) << i;
    ASSERT_TRUE(table.insert(some.make(i, some_buffer(i)))) << i;
  }
  EXPECT_LE(table.bytes(), 32 * count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto where = some_buffer(i);
    EXPECT_EQ(found(table, where), &some.all[i].one);
    EXPECT_EQ(found(table, {where.end - 1, where.end}), &some.all[i].one);
  }
}

// Of two granules the first has room, and the second has none.
TEST(hit_table, record_is_in_both_places_or_in_none) {
  hit_table table(false);
  records some(100);
  for (std::size_t i = 0; i < 99; ++i) {
    grow(table);
    ASSERT_TRUE(table.insert(some.make(i, {0x20000, 0x30000})));
  }
  ASSERT_TRUE(some.all[98].one.is(record::listed_alone)) << "the granule has no room for all";
  const record* const last = &some.all[99].one;
  ASSERT_TRUE(table.insert(some.make(99, {0x18000, 0x28000})));
  EXPECT_TRUE(last->is(record::listed_alone)) << "its second granule is full";
  EXPECT_TRUE(is_found_for(table, last, {0x18000, 0x28000}));
  EXPECT_FALSE(is_found_for(table, last, {0x19000, 0x19001})) << "it was left in its first granule";
  table.erase(&some.all[99].one);
  EXPECT_EQ(found(table, {0x18000, 0x18001}), nullptr);
  table.erase(&some.all[0].one);
  ASSERT_TRUE(table.insert(some.make(99, {0x18000, 0x28000})));
  EXPECT_FALSE(last->is(record::listed_alone));
  EXPECT_TRUE(is_found(table, last));
  for (auto& one : some.all)
    if (one.one.is(record::listed)) table.erase(&one.one);
  EXPECT_EQ(found(table, {0x18000, 0x18001}), nullptr);
  EXPECT_EQ(found(table, {0x20000, 0x20001}), nullptr);
}

// Other records are cold, so erasing must not read them. Here their contents are wrong meanwhile: a table that read
// them would move them to places where they are not found.
TEST(hit_table, erasing_reads_no_other_record) {
  for (const std::size_t count : {150U, 250U, 1000U, 1500U}) {
    hit_table table(false);
    records some(count);
    std::vector<std::size_t> in;
    for (std::size_t i = 0; i < count; ++i) {
      grow(table);
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
    grow(table);
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

/// Records of a few kinds come and go at random: buffers in two places, identical ranges, granules with many.
class hit_table_growth : public ::testing::Test {
 protected:
  void come() {
    if (out_.empty()) return;
    std::swap(out_[random_() % out_.size()], out_.back());
    const auto number = out_.back();
    record* const added = some_.make(number, range_of(number));
    if (!table_.insert(added)) return;
    out_.pop_back();
    in_.push_back(number);
  }
  void go() {
    if (in_.empty()) return;
    std::swap(in_[random_() % in_.size()], in_.back());
    table_.erase(&some_.all[in_.back()].one);
    out_.push_back(in_.back());
    in_.pop_back();
  }
  void agree() {
    for (const auto number : in_) ASSERT_TRUE(is_found(table_, &some_.all[number].one)) << number;
    for (const auto number : out_) {
      if (some_.all[number].one.end.load() == 0) continue;  // never inserted
      const auto byte = some_.all[number].one.begin.load();
      ASSERT_EQ(table_.find({}, {byte, byte + 1}, [&](const record* one) { return one == &some_.all[number].one; }),
                nullptr)
          << number;
    }
  }

  static range range_of(std::size_t number) {
    if (number % 16 == 0) return some_buffer(number / 320);                     // 20 have the same range
    if (number % 16 == 1) return {0x10000 + number / 8, 0x10009 + number / 8};  // several in one granule
    return some_buffer(number);
  }

  static constexpr std::size_t count = 12'000;  // more than the records that are read again at the fifth doubling
  std::mt19937_64 random_{test_seed()};
  hit_table table_{false};
  records some_{count};
  std::vector<std::size_t> in_;
  std::vector<std::size_t> out_ = [] {
    std::vector<std::size_t> all(count);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }();
};

TEST_F(hit_table_growth, moves_lose_and_keep_no_record_that_comes_or_goes_between_them) {
  std::size_t growths = 0;
  while (in_.size() < count * 9 / 10) {
    come();
    if (table_.wants() == 0) continue;
    table_.grow(hit_table::memory(table_.wants()));
    for (growths += table_.growing() ? 1 : 0; table_.growing(); table_.move()) {
      for (auto left = random_() % 32; left > 0; --left) random_() % 2 == 0 ? come() : go();
      if (random_() % 16 != 0) continue;
      ASSERT_NO_FATAL_FAILURE(agree());
    }
    ASSERT_NO_FATAL_FAILURE(agree());
  }
  EXPECT_GE(growths, 5U);
  while (!in_.empty()) go();
  agree();
}

// The writer erases nothing, so a reader misses a record only if the table is replaced while the reader looks.
TEST_F(hit_table_growth, readers_find_what_is_there_while_it_grows) {
  std::atomic<std::size_t> there{0};
  std::atomic<bool> done{false};
  std::size_t missed = 0;
  std::thread reader([&] {
    std::mt19937_64 random(1);
    while (!done.load()) {
      const auto known = there.load();
      if (known != 0 && !is_found(table_, &some_.all[random() % known].one)) ++missed;
    }
  });
  std::size_t replaced = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto before = table_.bytes();
    grow(table_);
    if (table_.bytes() != before) ++replaced;
    EXPECT_TRUE(table_.insert(some_.make(i, some_buffer(i)))) << i;
    there.store(i + 1);
  }
  done.store(true);
  reader.join();
  EXPECT_LE(missed, replaced);
}

}  // namespace
}  // namespace pinfold::testing::hit_table_test
