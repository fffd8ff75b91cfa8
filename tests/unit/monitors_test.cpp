// SPDX-License-Identifier: BSD-3-Clause
// The monitors that a cache gets, and their effect on it: R30-R33.
#include "support/fixtures/local_fixture.hpp"

#include <pinfold/monitors/report.hpp>
#include <pinfold/registrars/null.hpp>

#include <algorithm>
#include <cstdlib>
#include <fcntl.h>
#include <sys/mman.h>
#include <utility>
#include <vector>

namespace pinfold::testing::monitors_test {
namespace {

constexpr std::size_t bytes = 65536;
constexpr int usable = PROT_READ | PROT_WRITE;

void* mapped(int flags = MAP_PRIVATE | MAP_ANONYMOUS, int file = -1) {
  void* const at = ::mmap(nullptr, bytes, usable, flags, file, 0);
  EXPECT_NE(at, MAP_FAILED);
  return at;
}

struct monitored {
  std::shared_ptr<fake_device> device = std::make_shared<fake_device>();
  pinfold::cache<fake_registrar> cache;

  explicit monitored(monitor_choice monitor = monitor_choice::automatic, cache_options options = {})
      : cache(fake_registrar{device}, with(std::move(options), monitor)) {}
  static cache_options with(cache_options options, monitor_choice monitor) {
    options.monitor = monitor;
    return options;
  }
  [[nodiscard]] bool works() const { return !cache.monitors().starts_with("none"); }
  void touch(void* at, acquire_options how = {}) { ASSERT_TRUE(cache.acquire(at, bytes, local_access, how)); }
};

TEST(monitors, R33_cache_keeps_registrations_that_a_proven_monitor_watches) {
  monitored m;
  if (!m.works()) GTEST_SKIP() << m.cache.monitors();
  void* const at = mapped();
  m.touch(at);
  m.touch(at);
  EXPECT_EQ(m.device->opened, 1U);
  ::munmap(at, bytes);
  void* const again = ::mmap(at, bytes, usable, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  ASSERT_EQ(again, at);
  m.touch(at);
  EXPECT_EQ(m.device->opened, 2U);
  ::munmap(at, bytes);
}

// If the unmaps beside it were posted, the log of freed ranges would overflow, and the cache would invalidate
// everything.
void outlives_unmaps_beside_it(monitor_choice monitor) {
  monitored m(monitor);
  if (!m.works()) GTEST_SKIP() << m.cache.monitors();
  constexpr std::size_t page = 4096;
  auto* const at =
      static_cast<std::byte*>(::mmap(nullptr, 2 * bytes, usable, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) + page;
  std::byte* const beside = at + bytes;
  m.touch(at);
  for (int i = 0; i < 40'000; ++i) {
    ASSERT_EQ(::munmap(beside, page), 0);
    ASSERT_EQ(::mmap(beside, page, usable, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0), beside);
  }
  m.touch(at);
  EXPECT_EQ(m.device->opened, 1U);
  ::munmap(at - page, 2 * bytes);
}
TEST(monitors, R31_a_registration_outlives_any_number_of_unmaps_beside_it) {
  outlives_unmaps_beside_it(monitor_choice::automatic);
}
TEST(monitors, R31_a_registration_outlives_any_number_of_unmaps_beside_it_over_userfaultfd) {
  outlives_unmaps_beside_it(monitor_choice::userfaultfd);
}

TEST(monitors, R31_memory_that_is_freed_and_never_unmapped_stays_a_hit) {
  monitored m;
  if (!m.works()) GTEST_SKIP() << m.cache.monitors();
  std::size_t moved = 0;
  std::uintptr_t last = 0;
  for (int i = 0; i < 1000; ++i) {
    void* const block = std::malloc(bytes);
    m.touch(block);
    moved +=
        std::exchange(last, reinterpret_cast<std::uintptr_t>(block)) != reinterpret_cast<std::uintptr_t>(block) ? 1 : 0;
    std::free(block);
  }
  if (moved > 10) GTEST_SKIP() << "this allocator gives another block each time";
  EXPECT_LE(m.device->opened, 1 + moved);
}

TEST(monitors, R32_cache_with_an_unavailable_monitor_keeps_nothing) {
  monitored m(monitor_choice::hooks | monitor_choice::none);
  EXPECT_TRUE(m.cache.monitors().starts_with("none (switched off")) << m.cache.monitors();
  void* const at = mapped();
  m.touch(at);
  EXPECT_EQ(m.device->open_count(), 0U);
  ::munmap(at, bytes);
}

TEST(monitors, R33_cache_with_unknown_monitor_bits_keeps_nothing) {
  for (const unsigned bits : {16U, 32U, 64U, 17U, 0x72U}) {
    monitored m(static_cast<monitor_choice>(bits));
    EXPECT_TRUE(m.cache.monitors().starts_with("none (")) << m.cache.monitors();
    EXPECT_NE(m.cache.monitors().find("unknown bits in monitor_choice"), std::string::npos) << m.cache.monitors();
    void* const at = mapped();
    m.touch(at);
    m.touch(at);
    EXPECT_EQ(m.device->opened, 2U) << bits;
    EXPECT_EQ(m.device->open_count(), 0U) << bits;
    ::munmap(at, bytes);
  }
}

TEST(monitors, strict_cache_hits_and_sees_munmap) {
  monitored m(monitor_choice::userfaultfd, {.strict = true});
  if (!m.works()) GTEST_SKIP() << m.cache.monitors();
  void* const at = mapped();
  for (int i = 0; i < 10; ++i) m.touch(at);
  EXPECT_EQ(m.device->opened, 1U);
  EXPECT_EQ(m.cache.statistics().hits, 9U);
  EXPECT_TRUE(m.cache.find(at, bytes));
  ::munmap(at, bytes);
  EXPECT_FALSE(m.cache.find(at, bytes));
}

TEST(monitors, R34_allocator_hints_are_set_where_honoured_and_restored) {
  const auto habit = [] {
    for (const auto& one : report_monitors().hazards)
      if (one.event == "free of 64 MiB") return one.what;
    return hazard_report::outcome::unknown_here;
  };
  if (!monitored().works()) GTEST_SKIP() << monitored().cache.monitors();
  if (habit() != hazard_report::outcome::gone) GTEST_SKIP() << "this allocator keeps large blocks anyway";
  {
    monitored hinted(monitor_choice::automatic, {.allocator_hints = true});
    if (!hinted.cache.monitors().ends_with(", allocator hints")) GTEST_SKIP() << hinted.cache.monitors();
    EXPECT_EQ(habit(), hazard_report::outcome::kept);
    monitored other(monitor_choice::automatic, {.retain = false, .allocator_hints = true});
    EXPECT_FALSE(other.cache.monitors().ends_with(", allocator hints")) << "of use only where registrations are kept";
  }
  EXPECT_EQ(habit(), hazard_report::outcome::gone);
}

// A fixture with memory of a file (R30).
struct file_backed : ::testing::Test {
  monitored m;
  int file = ::memfd_create("pinfold-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  void* at = nullptr;

  file_backed() {
    EXPECT_EQ(::ftruncate(file, bytes), 0);
    at = mapped(MAP_SHARED, file);
  }
  ~file_backed() override {
    ::munmap(at, bytes);
    ::close(file);
  }
  void SetUp() override {
    if (!m.works()) GTEST_SKIP() << m.cache.monitors();
  }
  std::size_t opens_for_three(acquire_options how = {}) {
    for (int i = 0; i < 3; ++i) m.touch(at, how);
    return m.device->opened;
  }
};

TEST_F(file_backed, R30_shared_file_mapping_is_not_kept_and_is_counted) {
  EXPECT_EQ(opens_for_three(), 3U);
  EXPECT_EQ(m.device->open_count(), 0U);
  EXPECT_EQ(m.cache.statistics().file_backed, 3U);
  EXPECT_EQ(m.cache.statistics().unmonitored, 3U);
}

TEST_F(file_backed, R30_sealed_memfd_is_kept) {
  ASSERT_EQ(::fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE), 0);
  EXPECT_EQ(opens_for_three({.file = file}), 1U);
  EXPECT_EQ(m.cache.statistics().file_backed, 0U);
}

TEST_F(file_backed, R30_memfd_with_insufficient_seals_is_not_kept) {
  ASSERT_EQ(::fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_EQ(opens_for_three({.file = file}), 3U) << "a hole could be punched";
}

TEST_F(file_backed, R30_descriptor_of_another_file_is_refused) {
  const int other = ::memfd_create("pinfold-other", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::fcntl(other, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE), 0);
  const auto refused = m.cache.acquire(at, bytes, local_access, {.file = other});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error(), errc::invalid_argument);
  EXPECT_EQ(m.device->opened, 0U);
  ::close(other);
}

TEST_F(file_backed, R30_private_file_mapping_is_not_kept) {
  ::munmap(at, bytes);
  at = mapped(MAP_PRIVATE, file);
  EXPECT_EQ(opens_for_three(), 3U);
}

TEST_F(file_backed, R30_partly_file_backed_range_is_not_kept) {
  void* const two = ::mmap(nullptr, 2 * bytes, usable, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto* second = static_cast<std::byte*>(two) + bytes;
  ASSERT_EQ(::mmap(second, bytes, usable, MAP_SHARED | MAP_FIXED, file, 0), second);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(m.cache.acquire(two, 2 * bytes));
  EXPECT_EQ(m.device->opened, 2U);
  ::munmap(two, 2 * bytes);
}

alignas(4096) std::byte program_data[2 * bytes] = {std::byte{1}};

TEST(monitors, R30_program_data_is_kept_only_with_the_program_data_option) {
  for (const bool wanted : {false, true}) {
    monitored m(monitor_choice::automatic, {.program_data = wanted});
    if (!m.works()) GTEST_SKIP() << m.cache.monitors();
    m.touch(program_data);
    m.touch(program_data);
    EXPECT_EQ(m.device->opened, wanted ? 1U : 2U);
  }
}

TEST(monitors, report_lists_the_events_that_each_monitor_covers) {
  const auto report = report_monitors();
  ASSERT_FALSE(report.monitors.empty());
  const bool any = std::any_of(report.monitors.begin(), report.monitors.end(), [](auto& one) { return one.proven; });
  if (!any) GTEST_SKIP() << report.automatic;
  for (const auto& one : report.monitors) EXPECT_NE(one.proven, !one.why_not.empty()) << one.name;
  const auto unmapped =
      std::find_if(report.hazards.begin(), report.hazards.end(), [](const auto& one) { return one.event == "munmap"; });
  ASSERT_NE(unmapped, report.hazards.end());
  EXPECT_EQ(unmapped->what, hazard_report::outcome::gone);
  EXPECT_FALSE(unmapped->covered_by.empty());
  EXPECT_FALSE(report.automatic.starts_with("none"));
}

// The thread of the request asked what is mapped there before the memory was replaced.
TEST(monitors, R30_registration_of_a_file_that_was_mapped_during_the_open_is_not_kept) {
  monitored m;
  if (!m.works()) GTEST_SKIP() << m.cache.monitors();
  const int file = ::memfd_create("pinfold-test", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(file, bytes), 0);
  for (const int opens : {1, 2}) {
    void* const at = mapped();
    int left = opens;
    m.device->on_open = [&] {
      --left;
      const bool done = left > 0 ? ::madvise(at, bytes, MADV_DONTNEED) == 0
                                 : left < 0 || ::mmap(at, bytes, usable, MAP_SHARED | MAP_FIXED, file, 0) == at;
      EXPECT_TRUE(done);
    };
    m.touch(at);
    EXPECT_LE(left, 0);
    m.device->on_open = nullptr;
    EXPECT_EQ(m.device->open_count(), 0U) << opens;
    ::munmap(at, bytes);
  }
  ::close(file);
}

}  // namespace
}  // namespace pinfold::testing::monitors_test
