// SPDX-License-Identifier: BSD-3-Clause
// The range index with many entries: its memory, the entries that a look-up reads, and the ends of the address space.
#include "index/range_index.hpp"
#include "support/fixtures/pooled_entries.hpp"
#include "support/host/settings.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace pinfold::testing::range_index_test {
namespace {

using index::entry;
using index::range_index;

/// Entries that the test owns, and an index that is made ready for each.
struct entries {
  pooled_entries pool;
  range_index index;
  std::vector<pooled_entries::owned> all;
  std::size_t alone = 0;  // how many of them had a place at once

  entry* add(range covered, peer_id peer = {}) {
    while (!index.ready()) index.adopt(range_index::make_chunk(index.next_chunk()));
    all.push_back(pool.make(peer, covered));
    range_index::place place;
    if (index.find_alone(peer, covered, place)) {
      ++alone;
      index.insert(all.back().get(), peer, covered, place);
    } else {
      index.insert(all.back().get());
    }
    return all.back().get();
  }
  [[nodiscard]] std::vector<const entry*> found(range where, peer_id peer = {}) const {
    std::vector<const entry*> seen;
    index.find_overlap(peer, where, [&](const entry& one) {
      seen.push_back(&one);
      return false;
    });
    return seen;
  }
  void erase_all(std::mt19937_64& random) {
    std::shuffle(all.begin(), all.end(), random);
    for (std::size_t i = 0; i < all.size(); ++i) {
      index.erase(all[i].get());
      ASSERT_TRUE(i % 1000 != 0 || index.consistent()) << "after " << i;
    }
    all.clear();
  }
};

range region(std::size_t number, std::size_t bytes = 65536) {
  const auto begin = 0x10000 + number * 65536;
  return {begin, begin + bytes};
}

constexpr std::size_t many = 20'000;

std::vector<std::size_t> in_order() {
  std::vector<std::size_t> order(many);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

// Adds all regions in this order, checks that each is found alone, and erases them at random. Returns the bytes for
// each entry.
double bytes_an_entry(const std::vector<std::size_t>& order, std::mt19937_64& random) {
  entries made;
  for (const auto number : order) made.add(region(number));
  EXPECT_EQ(made.alone, order.size()) << "nothing overlaps";
  EXPECT_TRUE(made.index.consistent());
  for (std::size_t i = 0; i < order.size(); ++i)
    EXPECT_EQ(made.found(region(order[i])), std::vector<const entry*>{made.all[i].get()});
  const auto bytes = static_cast<double>(made.index.bytes_in_use());
  EXPECT_LE(made.index.bytes(), made.index.bytes_in_use() + 2 * 65536) << "little unused memory";
  made.erase_all(random);
  EXPECT_TRUE(made.index.consistent());
  EXPECT_EQ(made.index.bytes_in_use(), 0U);
  return bytes / static_cast<double>(many);
}

TEST(range_index, memory_per_entry_is_bounded_in_any_order_of_insertion) {
  std::mt19937_64 random(test_seed());
  auto order = in_order();
  EXPECT_LT(bytes_an_entry(order, random), 19.5);
  std::reverse(order.begin(), order.end());
  EXPECT_LT(bytes_an_entry(order, random), 26);
  std::shuffle(order.begin(), order.end(), random);
  EXPECT_LT(bytes_an_entry(order, random), 26);
}

TEST(range_index, few_entries_take_one_page) {
  entries made;
  for (std::size_t i = 0; i < 3; ++i) made.add(region(i));
  EXPECT_LE(made.index.bytes(), 4096U);
}

TEST(range_index, leaves_are_merged_as_entries_are_erased) {
  entries made;
  for (std::size_t i = 0; i < many; ++i) made.add(region(i));
  const auto before = made.index.bytes_in_use();
  for (std::size_t i = 0; i < many; ++i)
    if (i % 10 != 0) made.index.erase(made.all[i].get());
  EXPECT_TRUE(made.index.consistent());
  EXPECT_LT(made.index.bytes_in_use(), before / 5);
}

TEST(range_index, interleaved_peers_have_separate_leaves) {
  std::mt19937_64 random(test_seed());
  entries made;
  constexpr std::size_t peers = 50;
  auto order = in_order();
  std::shuffle(order.begin(), order.end(), random);
  for (const auto number : order) made.add(region(number / peers), {number % peers});
  EXPECT_TRUE(made.index.consistent());
  EXPECT_LT(made.index.bytes_in_use() / many, 30U);
  for (std::size_t i = 0; i < many; i += 7) {
    const auto number = order[i];
    EXPECT_EQ(made.found(region(number / peers), {number % peers}), std::vector<const entry*>{made.all[i].get()});
  }
  EXPECT_EQ(made.found({0, UINTPTR_MAX}, {3}).size(), many / peers);
  EXPECT_TRUE(made.found({0, UINTPTR_MAX}, {peers}).empty());
  made.erase_all(random);
  EXPECT_TRUE(made.index.consistent());
}

TEST(range_index, entries_with_one_peer_each_are_found) {
  std::mt19937_64 random(test_seed());
  entries made;
  auto order = in_order();
  std::shuffle(order.begin(), order.end(), random);
  for (const auto number : order) made.add(region(0), {number == 0 ? UINT64_MAX : number});
  EXPECT_TRUE(made.index.consistent());
  for (std::size_t i = 0; i < many; i += 7)
    EXPECT_EQ(made.found(region(0), made.all[i]->peer()), std::vector<const entry*>{made.all[i].get()});
  made.erase_all(random);
  EXPECT_TRUE(made.index.consistent());
}

TEST(range_index, equal_ranges_are_distinguished) {
  std::mt19937_64 random(test_seed());
  entries made;
  for (std::size_t i = 0; i < 1000; ++i) made.add(region(i % 3 == 0 ? i : 500));
  EXPECT_EQ(made.found(region(500)).size(), 666U);
  for (std::size_t i = 0; i < 1000; ++i) {
    const auto number = random() % made.all.size();
    entry* gone = made.all[number].get();
    made.index.erase(gone);
    const auto left = made.found({0, UINTPTR_MAX});
    EXPECT_EQ(left.size(), made.all.size() - 1);
    EXPECT_EQ(std::count(left.begin(), left.end(), gone), 0);
    ASSERT_TRUE(made.index.consistent());
    made.all.erase(made.all.begin() + static_cast<std::ptrdiff_t>(number));
  }
}

// Two ranges longer than a slot can encode lie over everything; a look-up must still not walk over the entries that
// they cover.
TEST(range_index, range_over_all_memory_is_found_without_a_full_scan) {
  entries made;
  for (std::size_t i = 1; i < many; ++i) made.add(region(i, 4096));
  const entry* over = made.add({0, UINTPTR_MAX});  // number many - 1
  const entry* also = made.add({0x100, std::uintptr_t{1} << 45U});
  EXPECT_TRUE(made.index.consistent());
  for (std::size_t i = 1; i < many; i += 13) {
    const auto between = region(i).begin + 32768;
    EXPECT_EQ(made.found({between, between + 1}), (std::vector<const entry*>{over, also}));
    EXPECT_EQ(made.found(region(i)), (std::vector<const entry*>{over, also, made.all[i - 1].get()}));
  }
  made.index.erase(made.all[many - 1].get());
  made.index.erase(made.all[many].get());
  EXPECT_TRUE(made.index.consistent());
  EXPECT_TRUE(made.found({region(5).begin + 32768, region(5).begin + 32769}).empty());
}

TEST(range_index, ranges_at_both_ends_of_the_address_space_are_found) {
  entries made;
  const entry* last_byte = made.add({UINTPTR_MAX - 1, UINTPTR_MAX});
  const entry* last_page = made.add({UINTPTR_MAX - 4095, UINTPTR_MAX});
  const entry* last_but_one = made.add({UINTPTR_MAX - 8191, UINTPTR_MAX - 4095});
  const entry* first_byte = made.add({0, 1});
  EXPECT_TRUE(made.index.consistent());
  EXPECT_EQ(made.found({UINTPTR_MAX - 1, UINTPTR_MAX}), (std::vector<const entry*>{last_page, last_byte}));
  EXPECT_EQ(made.found({UINTPTR_MAX - 4095, UINTPTR_MAX - 4094}), std::vector<const entry*>{last_page});
  EXPECT_EQ(made.found({UINTPTR_MAX - 4096, UINTPTR_MAX - 4095}), std::vector<const entry*>{last_but_one});
  EXPECT_EQ(made.found({0, 4096}), std::vector<const entry*>{first_byte});
  EXPECT_TRUE(made.found({1, 4096}).empty());
  EXPECT_EQ(made.found({0, UINTPTR_MAX}).size(), 4U);
}

// A slot counts pages: tests lengths around the largest that it can encode, and ranges that begin and end inside pages.
TEST(range_index, ranges_of_any_length_are_found) {
  const std::uintptr_t lengths[] = {1, 4095, 4096, 4097, 0xfffd000, 0xfffe000, 0xfffe001, 0xffff000, 0x10000000};
  for (const auto length : lengths)
    for (const std::uintptr_t begin : {0x7000U, 0x7001U, 0x7fffU}) {
      entries made;
      const std::vector<const entry*> it{made.add({begin, begin + length})};
      EXPECT_TRUE(made.index.consistent());
      EXPECT_EQ(made.found({begin, begin + 1}), it);
      EXPECT_EQ(made.found({begin + length - 1, begin + length}), it);
      EXPECT_TRUE(made.found({begin + length, begin + length + 1}).empty());
      EXPECT_TRUE(made.found({begin - 1, begin}).empty());
    }
}

// Neighbours are cold, so a look-up must judge entries beside the range by their slots. Here the entries themselves
// have wrong ranges.
TEST(range_index, entries_beside_the_range_are_not_read) {
  entries made;
  for (std::size_t i = 0; i < 100; ++i) made.add(region(i, 4096));
  for (const auto& one : made.all) one->cover({0, UINTPTR_MAX});
  for (std::size_t i = 0; i < 100; ++i)
    EXPECT_TRUE(made.found({region(i).begin + 4096, region(i + 1).begin}).empty()) << i;
  for (std::size_t i = 0; i < 100; ++i) made.all[i]->cover(region(i, 4096));
  EXPECT_TRUE(made.index.consistent());
}

TEST(range_index, find_overlap_stops_at_the_first_match) {
  entries made;
  for (std::size_t i = 0; i < 1000; ++i) made.add({i, 2000});
  std::size_t asked = 0;
  const entry* got = made.index.find_overlap({}, {1500, 1501}, [&](const entry& one) {
    ++asked;
    return one.covered().begin == 700;
  });
  EXPECT_EQ(got, made.all[700].get());
  EXPECT_EQ(asked, 701U);
}

// Short, long, nested and equal ranges of several peers.
TEST(range_index, what_contains_a_range_or_begins_in_it_is_found_by_address) {
  std::mt19937_64 random(test_seed());
  entries made;
  const auto any = [&] {
    const std::uintptr_t begin = 4096 + random() % 200 * 1024;
    return range{begin, begin + 1 + random() % (random() % 4 == 0 ? 400'000 : 9'000)};
  };
  for (int i = 0; i < 3000; ++i) made.add(any(), {random() % 3});
  const auto expected = [&](peer_id peer, auto&& wanted) {
    std::vector<range> all;
    for (const auto& one : made.all)
      if (one->peer() == peer && wanted(one->covered())) all.push_back(one->covered());
    std::ranges::sort(all, {}, [](const range& one) { return std::pair(one.begin, one.end); });
    return all;
  };
  std::vector<range> seen;
  const auto note = [&](const entry& one) {
    seen.push_back(one.covered());
    return false;
  };
  for (int i = 0; i < 1000; ++i) {
    const peer_id peer{random() % 3};
    const range where = any();
    EXPECT_EQ(made.index.find_containing(peer, where, note), nullptr);
    ASSERT_EQ(std::exchange(seen, {}), expected(peer, [&](const range& one) { return one.contains(where); }));
    EXPECT_EQ(made.index.find_beginning(peer, where, note), nullptr);
    ASSERT_EQ(std::exchange(seen, {}),
              expected(peer, [&](const range& one) { return where.begin <= one.begin && one.begin < where.end; }));
  }
}

// Of windows that overlap each other, those that end before a range, or begin behind its first byte, are not read.
TEST(range_index, windows_beside_what_contains_a_range_are_not_read) {
  entries made;
  for (std::size_t i = 0; i < 1000; ++i) made.add({0x100000 + i * 4096, 0x100000 + (i + 1000) * 4096});
  for (const auto& one : made.all) one->cover({0, UINTPTR_MAX});
  std::size_t read = 0;
  const auto count = [&](const entry&) {
    ++read;
    return false;
  };
  const range last{0x100000 + 999 * 4096, 0x100000 + 1999 * 4096};
  made.index.find_containing({}, last, count);
  EXPECT_LE(read, 1U);
  for (std::size_t i = 0; i < 1000; ++i) made.all[i]->cover({0x100000 + i * 4096, 0x100000 + (i + 1000) * 4096});
}

TEST(range_index, ready_is_false_without_room) {
  entries made;
  EXPECT_FALSE(made.index.ready());
  made.index.adopt(range_index::make_chunk(made.index.next_chunk()));
  EXPECT_TRUE(made.index.ready());
  EXPECT_FALSE(made.index.ready(100));
  std::vector<pooled_entries::owned> some;
  while (some.size() < 500 && made.index.ready()) {
    some.push_back(made.pool.make({}, region(some.size())));
    made.index.insert(some.back().get());
  }
  EXPECT_GT(some.size(), 15U) << "a page of nodes has room for more than a leaf";
  EXPECT_LT(some.size(), 500U);
  EXPECT_TRUE(made.index.consistent());
  for (const auto& one : some) made.index.erase(one.get());
  EXPECT_TRUE(made.index.ready()) << "what was erased leaves its room";
}

// The promise of `ready` holds in the worst order: each entry has a peer of its own, so each takes a leaf.
TEST(range_index, ready_guarantees_room_for_the_given_number_of_entries) {
  std::mt19937_64 random(test_seed());
  for (const std::size_t ahead : {1U, 2U, 66U, 1000U}) {
    entries made;
    for (std::size_t i = 0; i < 3000; ++i) made.add(region(random() % many), {random() % 1000});
    while (!made.index.ready(ahead)) made.index.adopt(range_index::make_chunk(made.index.next_chunk()));
    std::vector<pooled_entries::owned> more;
    for (std::size_t i = 0; i < ahead; ++i) {
      more.push_back(made.pool.make({random()}, region(random() % many)));
      made.index.insert(more.back().get());  // ends the program when there is no node
    }
    EXPECT_TRUE(made.index.consistent());
    for (const auto& one : more) made.index.erase(one.get());
  }
}

// The next child of a node may be another peer's, and end before an entry that overlaps none.
TEST(range_index, ends_are_not_sorted_across_peers) {
  entries one;
  one.add(region(0), {1});
  one.add(region(0), {2});
  one.add(region(256), {1});
  EXPECT_TRUE(one.index.consistent());
}

TEST(range_index, entry_of_a_lesser_peer_is_found_after_the_root_was_split) {
  entries one;
  one.add(region(0), {1});
  for (std::size_t i = 0; i < 225; ++i) one.add(region(i), {2});  // 15 leaves: the root is full
  const entry* far = one.add(region(100000), {1});
  one.add(region(225), {2});
  EXPECT_TRUE(one.index.consistent());
  EXPECT_EQ(one.found(region(100000), {1}), std::vector{far});
}

}  // namespace
}  // namespace pinfold::testing::range_index_test
