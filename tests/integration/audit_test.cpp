// SPDX-License-Identifier: BSD-3-Clause
// The audit: it detects memory that went without a monitor's event by its pages, and does not hand it out.
#include "support/doubles/test_ring.hpp"
#include "support/fixtures/local_fixture.hpp"

#include <cstring>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace pinfold::testing::audit_test {
namespace {

constexpr std::size_t bytes = 65536;

struct audited : ::testing::Test {
  std::vector<event> heard;
  test_ring ring;
  pinfold::cache<io_uring_registrar> cache{
      registrar_on(ring), keeping({.sink = [this](const event& one) { heard.push_back(one); }, .audit_one_in = 1})};
  int file = ::memfd_create("pinfold-test", MFD_CLOEXEC);
  void* at = mapped(nullptr, 0);

  static void* mapped(void* where, int fixed) {
    void* const made =
        ::mmap(where, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE | fixed, -1, 0);
    EXPECT_NE(made, MAP_FAILED);
    return made;
  }
  void SetUp() override {
    if (!cache.monitors().ends_with(", audited")) GTEST_SKIP() << cache.monitors();
  }
  ~audited() override {
    ::munmap(at, bytes);
    ::close(file);
  }

  // Replaces the memory without an event: the application promised to tell, and does not.
  void replace_memory() { mapped(at, MAP_FIXED); }

  char sent(std::uint32_t index) {
    char got = 0;
    EXPECT_EQ(ring.write(file, at, bytes, 0, index), static_cast<int>(bytes));
    EXPECT_EQ(::pread(file, &got, 1, bytes / 2), 1);
    return got;
  }
};

TEST_F(audited, hits_on_unchanged_pages_pass_the_audit) {
  std::memset(at, 'A', bytes);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(cache.acquire(at, bytes));
  EXPECT_TRUE(cache.find(at, bytes));
  EXPECT_EQ(cache.statistics().audits, 6U);
  EXPECT_EQ(cache.statistics().failed_audits, 0U);
  EXPECT_EQ(cache.statistics().opens, 1U);
}

TEST_F(audited, replaced_pages_are_detected_reported_and_registered_again) {
  std::memset(at, 'A', bytes);
  ASSERT_TRUE(cache.acquire(at, bytes));
  replace_memory();
  std::memset(at, 'B', bytes);
  auto again = cache.acquire(at, bytes);
  ASSERT_TRUE(again) << describe(again.error());
  EXPECT_EQ(sent(again->registration().index), 'B');
  EXPECT_EQ(cache.statistics().failed_audits, 1U);
  EXPECT_EQ(cache.statistics().opens, 2U);
  ASSERT_FALSE(heard.empty());
  EXPECT_EQ(heard.front().kind, event_kind::audit_failed);
  EXPECT_TRUE(heard.front().where.contains(*range::of(reinterpret_cast<std::uintptr_t>(at), bytes)));
}

TEST_F(audited, discarded_part_fails_the_audit) {
  std::memset(at, 'A', bytes);
  ASSERT_TRUE(cache.acquire(at, bytes));
  ASSERT_EQ(::madvise(static_cast<std::byte*>(at) + 4096, 4096, MADV_DONTNEED), 0);
  EXPECT_FALSE(cache.find(at, bytes)) << "find does not hand it out either";
  EXPECT_EQ(cache.statistics().failed_audits, 1U);
}

TEST_F(audited, failed_audit_is_reported_before_the_invalidation) {
  std::memset(at, 'A', bytes);
  ASSERT_TRUE(cache.acquire(at, bytes));
  replace_memory();
  std::string text;
  ASSERT_TRUE(cache.acquire(at, bytes));
  for (const auto& one : heard) text += name_of(one.kind);
  EXPECT_EQ(text,
            "audit_failed"
            "invalidated_while_leased")
      << "the audit held it while it was invalidated";
}

}  // namespace
}  // namespace pinfold::testing::audit_test
