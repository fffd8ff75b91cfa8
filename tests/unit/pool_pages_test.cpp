// SPDX-License-Identifier: BSD-3-Clause
// Which pages a slab got, and why not better ones: R50.
#include "support/fixtures/local_fixture.hpp"

#include <pinfold/pools/registered_pool.hpp>

#include <fstream>
#include <string>

namespace pinfold::testing::pool_pages_test {
namespace {

constexpr std::size_t mib = std::size_t{1} << 20U;

// Without those that a mapping has reserved.
std::size_t free_huge_pages() {
  const auto count_of = [](const std::string& name) {
    std::size_t count = 0;
    std::ifstream("/sys/kernel/mm/hugepages/hugepages-2048kB/" + name) >> count;
    return count;
  };
  return count_of("free_hugepages") - count_of("resv_hugepages");
}

// Returns a field of the kernel's report on one mapping, in KiB.
std::size_t smaps(const void* address, const std::string& field) {
  std::ifstream all("/proc/self/smaps");
  bool inside = false;
  for (std::string text; std::getline(all, text);) {
    std::uintptr_t begin = 0, end = 0;
    if (std::sscanf(text.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      const auto at = reinterpret_cast<std::uintptr_t>(address);
      inside = begin <= at && at < end;
    } else if (inside && text.starts_with(field + ":")) {
      return std::stoul(text.substr(field.size() + 1));
    }
  }
  return 0;
}

struct one_slab {
  local_fixture<> f;
  registered_pool<fake_registrar> pool;
  result<void*> data;

  explicit one_slab(pool_options options) : pool(f.cache, std::move(options)), data(pool.try_allocate(100)) {}
  ~one_slab() {
    if (data) pool.deallocate(*data, 100);
  }
  one_slab(const one_slab&) = delete;
  one_slab& operator=(const one_slab&) = delete;
  slab_info info() { return pool.slabs().at(0); }
};

TEST(pool_pages, R50_best_reports_the_page_kind_and_the_reason) {
  one_slab s({.slab_bytes = 4 * mib});
  ASSERT_TRUE(s.data) << describe(s.data.error());
  const auto got = s.info();
  std::printf("%s: '%s' (%d)\n", name_of(got.pages), got.reason, got.native);
  EXPECT_NE(got.pages, page_kind::best);
  EXPECT_EQ(got.pages == page_kind::hugetlb, got.reason[0] == '\0');
  if (got.pages == page_kind::hugetlb) {
    EXPECT_EQ(smaps(*s.data, "KernelPageSize"), 2048U);
  } else {
    EXPECT_EQ(smaps(*s.data, "KernelPageSize"), 4U);
  }
  EXPECT_EQ(got.pages == page_kind::thp, smaps(*s.data, "AnonHugePages") >= 4096U);
}

TEST(pool_pages, R50_hugetlb_gives_huge_pages_or_an_error) {
  const bool there = free_huge_pages() >= 2;
  one_slab s({.slab_bytes = 3 * mib, .pages = page_kind::hugetlb});
  if (there) {
    ASSERT_TRUE(s.data) << describe(s.data.error());
    EXPECT_EQ(smaps(*s.data, "KernelPageSize"), 2048U);
    EXPECT_EQ(s.info().memory.size(), 4 * mib) << "whole pages";
  } else {
    ASSERT_FALSE(s.data);
    EXPECT_EQ(s.data.error().code, errc::out_of_resources);
    EXPECT_EQ(s.data.error().native, ENOMEM);
  }
}

TEST(pool_pages, R50_thp_gives_transparent_huge_pages_or_an_error) {
  one_slab s({.pages = page_kind::thp});
  if (!s.data) {
    EXPECT_EQ(s.data.error().code, errc::unsupported);
    GTEST_SKIP() << describe(s.data.error());
  }
  EXPECT_EQ(s.info().pages, page_kind::thp);
  if (s.info().reason[0] == '\0') {
    EXPECT_GE(smaps(*s.data, "AnonHugePages"), 2048U);
  }
}

TEST(pool_pages, R50_plain_gives_plain_pages) {
  one_slab s({.pages = page_kind::plain});
  ASSERT_TRUE(s.data);
  EXPECT_EQ(s.info().pages, page_kind::plain);
  EXPECT_STREQ(s.info().reason, "");
  EXPECT_EQ(smaps(*s.data, "AnonHugePages"), 0U);
}

TEST(pool_pages, R50_small_slabs_report_why_they_are_plain) {
  one_slab s({.slab_bytes = 64 * 1024});
  ASSERT_TRUE(s.data);
  EXPECT_EQ(s.info().pages, page_kind::plain);
  EXPECT_STREQ(s.info().reason, "the slab is smaller than a huge page");
  EXPECT_EQ(s.info().memory.size(), 64U * 1024);
  EXPECT_EQ(s.info().memory.begin % (64U * 1024), 0U) << "aligned to itself";
}

TEST(pool_pages, odd_slab_sizes_are_rounded_to_pages) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{5000}, 2 * mib + 1}) {
    one_slab s({.slab_bytes = bytes, .pages = page_kind::plain});
    ASSERT_TRUE(s.data);
    EXPECT_EQ(s.info().memory.size() % 4096, 0U);
    EXPECT_GE(s.info().memory.size(), bytes);
  }
}

}  // namespace
}  // namespace pinfold::testing::pool_pages_test
