// SPDX-License-Identifier: BSD-3-Clause
// Reading memory that is damaged, or was never what it claims to be.
#include "debugging/table.hpp"
#include "inspection/walk.hpp"
#include "support/fixtures/local_fixture.hpp"
#include "support/host/settings.hpp"

#include <array>
#include <chrono>
#include <cstring>
#include <random>
#include <sys/mman.h>
#include <vector>

namespace pinfold::testing::inspection_walk_test {
namespace {

using inspection::memory;
using inspection::walk;

struct counting final : inspection::visitor {
  std::size_t caches = 0;
  std::size_t entries = 0;
  std::size_t complete = 0;
  void cache(const inspection::seen_cache&) noexcept override { ++caches; }
  void entry(const inspection::seen_entry&) noexcept override { ++entries; }
  void end(bool whole) noexcept override { complete += whole ? 1 : 0; }
};

std::uintptr_t address(const void* of) { return reinterpret_cast<std::uintptr_t>(of); }

/// A copy of a real table, of its cache, its shards and the layouts, which a test damages. What they point to is real.
struct copied {
  debugging::table table = debugging::pinfold_debug_v1;
  debugging::record_layout records = *table.records;
  debugging::ledger_layout ledgers = *table.ledgers;
  std::array<debugging::shard, 4> shards{};
  alignas(debugging::cache) std::array<char, sizeof(debugging::cache)> cache{};
  const void* first = cache.data();

  explicit copied(const debugging::cache& of) {
    std::memcpy(cache.data(), &of, sizeof of);
    std::memcpy(shards.data(), of.about.shards, sizeof(debugging::shard) * of.about.shard_count);
    const void* none = nullptr;
    const void* parts = shards.data();
    std::memcpy(cache.data() + offsetof(debugging::cache, next), &none, sizeof none);
    std::memcpy(cache.data() + offsetof(debugging::cache, about) + offsetof(debugging::facts, shards), &parts,
                sizeof parts);
    table.records = &records;
    table.ledgers = &ledgers;
    table.caches = reinterpret_cast<const std::atomic<debugging::cache*>*>(&first);
  }
};

/// The one cache of this process.
const debugging::cache& listed() {
  for (const auto* one = debugging::pinfold_debug_v1.caches->load(); one != nullptr; one = one->next)
    if (one->changes % 2 == 0) return *one;
  throw std::logic_error("there is no cache");
}

struct inspection_walk : ::testing::Test {
  local_fixture<> f{{.name = "forged", .shards = 4}};
  inspection_walk() {
    for (std::uintptr_t i = 1; i <= 300; ++i) f.touch(i * 0x10000, i * 0x10000 + 0x1000);
  }
  std::unique_ptr<walk> over = std::make_unique<walk>();
  memory own{0};
};

TEST_F(inspection_walk, a_copied_table_reads_like_the_original) {
  const copied forged(listed());
  counting seen;
  EXPECT_EQ(over->over(own, address(&forged.table), seen), walk::outcome::done);
  EXPECT_EQ(seen.caches, 1U);
  EXPECT_EQ(seen.entries, 300U);
  EXPECT_EQ(seen.complete, 1U);
}

TEST_F(inspection_walk, lists_that_go_in_a_circle_end) {
  copied forged(listed());
  const void* self = forged.cache.data();
  std::memcpy(forged.cache.data() + offsetof(debugging::cache, next), &self, sizeof self);
  counting seen;
  EXPECT_EQ(over->over(own, address(&forged.table), seen), walk::outcome::unfinished);
  EXPECT_LE(seen.caches, 3U);
  copied pages(listed());
  pages.records.page_next = pages.records.page_owner;  // leads into a control block
  counting lost;
  EXPECT_EQ(over->over(own, address(&pages.table), lost), walk::outcome::done);
  EXPECT_EQ(lost.complete, 0U);
}

TEST_F(inspection_walk, refuses_what_is_no_table_or_another_version) {
  counting seen;
  EXPECT_EQ(over->over(own, 8, seen), walk::outcome::not_a_table);
  EXPECT_EQ(over->over(own, UINTPTR_MAX - 8, seen), walk::outcome::not_a_table);
  EXPECT_EQ(over->over(own, address("no table"), seen), walk::outcome::not_a_table);
  copied newer(listed());
  ++newer.table.version;
  EXPECT_EQ(over->over(own, address(&newer.table), seen), walk::outcome::other_version);
  copied smaller(listed());
  smaller.table.cache_bytes = 8;
  EXPECT_EQ(over->over(own, address(&smaller.table), seen), walk::outcome::other_version);
  EXPECT_EQ(seen.caches, 0U);
}

TEST_F(inspection_walk, stops_at_the_limit) {
  std::size_t done = 0;
  for (std::uint64_t steps = 1; steps < 1000; ++steps) {
    counting seen;
    own.limit(steps);
    const auto outcome = over->over(own, address(&debugging::pinfold_debug_v1), seen);
    EXPECT_TRUE(outcome == walk::outcome::done || own.exhausted()) << steps;
    EXPECT_GE(seen.complete, own.exhausted() ? 0U : 1U) << steps;
    EXPECT_LE(seen.complete, steps < 20 ? 0U : 1U) << steps;
    if (!own.exhausted()) ++done;
  }
  EXPECT_GT(done, 50U);
  EXPECT_LT(done, 980U);
}

// Many caches with the same shards: little memory, from which the visitor would receive much.
TEST_F(inspection_walk, what_the_visitor_receives_is_within_the_limit_too) {
  constexpr std::size_t bytes = sizeof(debugging::cache);
  constexpr std::size_t number = 1000;
  copied forged(listed());
  std::vector<std::uint64_t> all(number * bytes / 8);
  for (std::size_t i = 0; i < number; ++i) {
    char* const one = reinterpret_cast<char*>(all.data()) + i * bytes;
    const void* const next = i + 1 < number ? one + bytes : nullptr;
    std::memcpy(one, forged.cache.data(), bytes);
    std::memcpy(one + offsetof(debugging::cache, next), &next, sizeof next);
  }
  forged.first = all.data();
  own.limit(20'000);
  counting seen;
  EXPECT_EQ(over->over(own, address(&forged.table), seen), walk::outcome::unfinished);
  EXPECT_TRUE(own.exhausted());
  EXPECT_GT(seen.entries, 10'000U);
  EXPECT_LE(seen.entries, 20'000U);
}

TEST_F(inspection_walk, random_damage_neither_faults_nor_goes_on_for_ever) {
  std::mt19937_64 random(test_seed());
  const auto start = std::chrono::steady_clock::now();
  std::size_t done = 0;
  for (int round = 0; round < 1000; ++round) {
    copied forged(listed());
    const std::array<std::pair<void*, std::size_t>, 5> parts{{{&forged.table.table_bytes, sizeof forged.table - 20},
                                                              {&forged.records, sizeof forged.records},
                                                              {&forged.ledgers, sizeof forged.ledgers},
                                                              {forged.shards.data(), sizeof forged.shards},
                                                              {forged.cache.data(), sizeof forged.cache}}};
    for (auto changes = random() % 4; changes-- > 0;) {
      const auto [at, bytes] = parts[random() % parts.size()];
      const auto where = random() % (bytes / 4) * 4;
      const std::array<std::uint32_t, 6> values{0, 1, 7, 16384, UINT32_MAX, static_cast<std::uint32_t>(random())};
      std::memcpy(static_cast<char*>(at) + where, &values[random() % values.size()], 4);
    }
    counting seen;
    memory mine(0);
    mine.limit(20'000);
    if (over->over(mine, address(&forged.table), seen) == walk::outcome::done && seen.complete > 0) ++done;
  }
  EXPECT_GT(done, 100U) << "the damage hit what matters, but not always";
  EXPECT_LT(done, 1000U);
  RecordProperty("ms", static_cast<int>((std::chrono::steady_clock::now() - start) / std::chrono::milliseconds(1)));
}

TEST_F(inspection_walk, random_bytes_are_no_table) {
  std::mt19937_64 random(test_seed() + 1);
  alignas(16) std::array<std::uint64_t, 64> bytes{};
  for (int round = 0; round < 1000; ++round) {
    for (auto& word : bytes) word = random();
    if (round % 2 == 0) std::memcpy(bytes.data(), &debugging::pinfold_debug_v1, 40);  // with the right sizes
    counting seen;
    memory mine(0);
    mine.limit(10'000);
    EXPECT_NE(over->over(mine, address(bytes.data()), seen), walk::outcome::done);
  }
}

}  // namespace
}  // namespace pinfold::testing::inspection_walk_test
