// SPDX-License-Identifier: BSD-3-Clause
// The kinds of recorded misses, and the windows that count them.
#include "trace/analysis/cache_analysis.hpp"

#include <gtest/gtest.h>

#include <string>

namespace pinfold::testing::miss_kinds_test {
namespace {

using tool::miss_kind;

tool::recorded_cache gathered(const std::string& lines) {
  const auto trace = parse_trace("# pinfold trace 1\ncache 1.1 a\n" + lines, "test");
  EXPECT_TRUE(trace) << trace.error().where;
  tool::trace_gatherer gatherer;
  if (trace)
    for (const auto& one : trace->requests) gatherer.add(one, trace->caches);
  auto all = gatherer.finish(nullptr);
  EXPECT_EQ(all.size(), 1U);
  return all.empty() ? tool::recorded_cache{} : std::move(all.front());
}

std::vector<miss_kind> kinds_of(const std::string& lines) {
  std::vector<miss_kind> kinds;
  for (const auto& one : gathered(lines).misses) kinds.push_back(one.kind);
  return kinds;
}

TEST(miss_kinds, memory_tells_them_apart) {
  EXPECT_EQ(kinds_of("1.1 0 0x1000 4096 0x1000 4096 5\n"
                     "1.1 0 0x2000 4096 0x2000 4096 5\n"
                     "1.1 0 0x1000 4096 0x1000 4096 hit\n"
                     "1.1 0 0x1000 4096 0x1000 4096 5\n"),
            (std::vector{miss_kind::cold, miss_kind::cold, miss_kind::again}));
  EXPECT_EQ(kinds_of("1.1 0 0x1000 4096 0x1000 4096 5\n"
                     "1.1 0 0x1800 4096 0x1000 8192 5\n"
                     "1.1 0 0x2000 16 0x2000 4096 5\n"
                     "1.1 0 0x3000 16 0x3000 4096 5\n"),
            (std::vector{miss_kind::cold, miss_kind::extent, miss_kind::again, miss_kind::cold}));
}

TEST(miss_kinds, peers_do_not_overlap) {
  EXPECT_EQ(kinds_of("1.1 1 0x1000 4096 0x1000 4096 5\n"
                     "1.1 2 0x1000 4096 0x1000 4096 5\n"
                     "1.1 1 0x1000 8192 0x1000 8192 5\n"),
            (std::vector{miss_kind::cold, miss_kind::cold, miss_kind::extent}));
}

TEST(miss_kinds, a_larger_registration_replaces_those_inside) {
  EXPECT_EQ(kinds_of("1.1 0 0x1000 4096 0x1000 4096 5\n"
                     "1.1 0 0x3000 4096 0x3000 4096 5\n"
                     "1.1 0 0x1000 16384 0x1000 16384 5\n"
                     "1.1 0 0x2000 8192 0x2000 8192 5\n"
                     "1.1 0 0x4fff 2 0x4000 8192 5\n"),
            (std::vector{miss_kind::cold, miss_kind::cold, miss_kind::extent, miss_kind::again, miss_kind::extent}));
}

TEST(analysis, windows_add_up) {
  std::string lines;
  for (int i = 0; i < 1000; ++i)
    lines += "1.1 0 0x" + std::to_string(1 + i % 7) + "000 4096 0x" + std::to_string(1 + i % 7) + "000 4096 " +
             (i % 3 == 0 ? "11\n" : "hit\n");
  const auto of = gathered(lines);
  const auto figures = tool::analyse(of, {.budget = 3 * 4096, .windows = 9, .ranges = 2});
  ASSERT_EQ(figures.windows.size(), 9U);
  std::uint64_t misses = 0;
  std::uint64_t evictions = 0;
  std::size_t next = 0;
  double opened_ns = 0;
  for (const auto& one : figures.windows) {
    EXPECT_EQ(one.first, next);
    next += one.requests;
    for (const auto number : one.misses) misses += number;
    evictions += one.evictions;
    opened_ns += one.opened_ns;
    EXPECT_EQ(one.used, 7U * 4096);
    EXPECT_EQ(one.seen, 7U * 4096);
  }
  EXPECT_EQ(next, figures.requests);
  EXPECT_EQ(misses, figures.misses);
  EXPECT_EQ(figures.misses, 334U);
  EXPECT_DOUBLE_EQ(opened_ns, 334 * 11);
  EXPECT_DOUBLE_EQ(figures.opened_ns, 334 * 11);
  EXPECT_EQ(evictions, figures.replayed(std::size_t{3} * 4096, "second-chance").evictions);
  EXPECT_GT(evictions, 0U);
  EXPECT_EQ(figures.policies.size(), tool::report_policies.size());
  const auto brief = tool::analyse(of, {.budget = 3 * 4096, .windows = 9, .ranges = 2, .compared_requests = 999});
  EXPECT_EQ(brief.policies, std::vector{tool::report_policies.front()});
  EXPECT_EQ(brief.replayed(std::size_t{3} * 4096, "second-chance").evictions, evictions);
  ASSERT_EQ(figures.costliest.size(), 2U);
  EXPECT_GE(figures.costliest[0].misses, figures.costliest[1].misses);
}

}  // namespace
}  // namespace pinfold::testing::miss_kinds_test
