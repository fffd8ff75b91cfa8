// SPDX-License-Identifier: BSD-3-Clause
// Version 1 of the statistics page: programs in other languages read it by these offsets (docs/operate/observation.md).
#include <pinfold/observation/counters.hpp>
#include <pinfold/observation/layout.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <string>

namespace pinfold::testing::page_layout_test {
namespace {

using namespace observation;

TEST(page_layout, places_are_those_of_version_1) {
  EXPECT_EQ(page_version, 1U);
  EXPECT_EQ(std::string(page_magic.begin(), page_magic.end()), "pinstat1");
  EXPECT_EQ(offsetof(page_header, version), 8U);
  EXPECT_EQ(offsetof(page_header, page_bytes), 16U);
  EXPECT_EQ(offsetof(page_header, caches_from), 24U);
  EXPECT_EQ(offsetof(page_header, events_from), 36U);
  EXPECT_EQ(offsetof(page_header, stacks_from), 48U);
  EXPECT_EQ(offsetof(page_header, state), 60U);
  EXPECT_EQ(offsetof(page_header, pid), 64U);
  EXPECT_EQ(offsetof(page_header, user), 68U);
  EXPECT_EQ(offsetof(page_header, start_time), 72U);
  EXPECT_EQ(offsetof(page_header, pid_namespace), 80U);
  EXPECT_EQ(offsetof(page_header, published_at), 104U);
  EXPECT_EQ(offsetof(page_header, period), 120U);
  EXPECT_EQ(offsetof(page_header, events_written), 152U);
  EXPECT_EQ(offsetof(page_header, stacks_until), 168U);
  EXPECT_EQ(offsetof(page_header, command), 184U);
  EXPECT_EQ(offsetof(page_header, library), 248U);
  EXPECT_EQ(offsetof(page_header, locked), 280U);
  EXPECT_EQ(offsetof(cache_slot, name), 48U);
  EXPECT_EQ(offsetof(cache_slot, kind), 112U);
  EXPECT_EQ(offsetof(cache_slot, monitors), 144U);
  EXPECT_EQ(offsetof(cache_slot, counters), 400U);
  EXPECT_EQ(offsetof(cache_slot, misses), 912U);
  EXPECT_EQ(sizeof(histogram), 336U);
  EXPECT_EQ(offsetof(cache_slot, opens), 912U + 7 * 336U);
  EXPECT_EQ(offsetof(cache_slot, closes), 912U + 14 * 336U);
  EXPECT_EQ(offsetof(cache_slot, errors_written), 912U + 24 * 336U);
  EXPECT_EQ(offsetof(cache_slot, errors), 912U + 24 * 336U + 8);
  EXPECT_EQ(offsetof(cache_slot, idle_at_eviction), 10392U);
  EXPECT_EQ(sizeof(error_record), 144U);
  EXPECT_EQ(sizeof(slow_call), 32U);
  EXPECT_EQ(sizeof(stack_record), 176U);
}

// Counters keep their places; later ones follow.
TEST(page_layout, counters_keep_their_order) {
  EXPECT_STREQ(counters[0].name, "acquires");
  EXPECT_STREQ(counters[10].name, "invalid");
  EXPECT_STREQ(counters[20].name, "bypasses");
  EXPECT_STREQ(counters[28].name, "waited");
  EXPECT_STREQ(counters[37].name, "bypass_bytes");
  EXPECT_STREQ(counters[38].name, "requests_waiting");
  EXPECT_STREQ(counters[39].name, "closes_due");
}

TEST(page_layout, buckets_are_powers_of_two) {
  EXPECT_EQ(bucket_of(0), 0U);
  EXPECT_EQ(bucket_of(127), 0U);
  EXPECT_EQ(bucket_of(128), 1U);
  EXPECT_EQ(bucket_of(255), 1U);
  EXPECT_EQ(bucket_of(256), 2U);
  EXPECT_EQ(bucket_of(UINT64_MAX), histogram_buckets - 1);
  for (std::size_t i = 0; i + 1 < histogram_buckets; ++i) {
    EXPECT_EQ(bucket_of(limit_of_bucket(i) - 1), i);
    EXPECT_EQ(bucket_of(limit_of_bucket(i)), i + 1);
  }
  EXPECT_EQ(limit_of_bucket(histogram_buckets - 1), 0U);
}

TEST(page_layout, size_classes_have_limits) {
  EXPECT_EQ(size_class_of(0), 0U);
  for (std::size_t i = 0; i + 1 < size_classes; ++i) {
    EXPECT_EQ(size_class_of(largest_of_class(i)), i);
    EXPECT_EQ(size_class_of(largest_of_class(i) + 1), i + 1);
  }
  EXPECT_EQ(largest_of_class(5), std::uint64_t{4} << 30U);
  EXPECT_EQ(size_class_of(UINT64_MAX), size_classes - 1);
}

}  // namespace
}  // namespace pinfold::testing::page_layout_test
