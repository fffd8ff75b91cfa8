// SPDX-License-Identifier: BSD-3-Clause
// A cache keeps only memory that all of its monitors watch; a monitor that has failed is found out and made anew (R53).
#include "invalidation/event_log.hpp"
#include "monitors/userfaultfd/kernel.hpp"
#include "support/fixtures/local_fixture.hpp"
#include "support/host/raw_calls.hpp"
#include "support/host/refused_call.hpp"
#include "support/host/sanitized.hpp"
#include "support/processes/child_process.hpp"

#include <pinfold/monitors/report.hpp>

#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

namespace pinfold::testing::monitor_trust_test {
namespace {

constexpr std::size_t bytes = 65536;
constexpr auto both = monitor_choice::hooks | monitor_choice::userfaultfd;

/// A cache whose events are recorded.
struct trusting {
  std::shared_ptr<fake_device> device = std::make_shared<fake_device>();
  std::vector<std::int32_t> refusals;  // errno of each `not_kept`
  std::vector<std::string> changes;    // text of each `monitor_degraded`
  pinfold::cache<fake_registrar> cache;

  explicit trusting(monitor_choice monitor) : cache(fake_registrar{device}, telling(monitor)) {}

  cache_options telling(monitor_choice monitor) {
    cache_options options;
    options.monitor = monitor;
    options.sink = [this](const event& told) {
      if (told.kind == event_kind::not_kept) refusals.push_back(told.cause->native);
      if (told.kind == event_kind::monitor_degraded) changes.emplace_back(told.text);
    };
    return options;
  }
  /// Acquires and releases twice; returns whether the second acquire was a hit. The first may register twice: the
  /// registration that it made while a monitor was made anew is closed again.
  bool keeps(void* at) {
    if (!cache.acquire(at, bytes)) return false;
    const std::uint64_t before = device->opened;
    return cache.acquire(at, bytes) && device->opened == before;
  }
};

void* mapped(int flags = MAP_PRIVATE | MAP_ANONYMOUS) {
  return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
}

range pages_at(const void* at) {
  const auto begin = reinterpret_cast<std::uintptr_t>(at);
  return {begin, begin + bytes};
}

std::string target_of(int number) {
  std::array<char, 256> target{};
  const auto size = ::readlink(("/proc/self/fd/" + std::to_string(number)).c_str(), target.data(), target.size());
  return {target.data(), size > 0 ? static_cast<std::size_t>(size) : 0};
}

/// Returns the number of the one userfaultfd of this process, or a negative number.
int the_userfaultfd() {
  for (int number = 0; number < 1000; ++number)
    if (target_of(number) == "anon_inode:[userfaultfd]") return number;
  return -1;
}

class combined_monitors : public ::testing::TestWithParam<monitor_choice> {
 protected:
  void SetUp() override {
    if (const trusting here(both); here.cache.monitors() != "hooks+userfaultfd") GTEST_SKIP() << here.cache.monitors();
  }
};

TEST_P(combined_monitors, R53_memory_watched_by_another_userfaultfd_is_not_kept) {
  trusting here(GetParam());
  void* const at = mapped();
  auto others = monitors::uffd::open();
  ASSERT_TRUE(others);
  ASSERT_EQ(monitors::uffd::start_watching(others->number, pages_at(at)), 0);
  EXPECT_FALSE(here.keeps(at));
  EXPECT_EQ(here.cache.statistics().unmonitored, 2U);
  EXPECT_EQ(here.refusals, (std::vector<std::int32_t>{EBUSY, EBUSY}));
  EXPECT_TRUE(here.changes.empty());
  ASSERT_EQ(monitors::uffd::stop_watching(others->number, pages_at(at)), 0);
  others->close();
  EXPECT_TRUE(here.keeps(at)) << "now it is free";
  ::munmap(at, bytes);
}

TEST_P(combined_monitors, R53_droppable_memory_is_not_kept) {
  constexpr int droppable = 8;  // MAP_DROPPABLE of Linux 6.11, which older headers lack
  void* const at = mapped(droppable | MAP_ANONYMOUS);
  if (at == MAP_FAILED) GTEST_SKIP() << "no droppable memory before Linux 6.11";
  trusting here(GetParam());
  EXPECT_FALSE(here.keeps(at));
  EXPECT_EQ(here.cache.statistics().unmonitored, 2U);
  EXPECT_EQ(here.refusals, (std::vector<std::int32_t>{EINVAL, EINVAL}));
  ::munmap(at, bytes);
}

INSTANTIATE_TEST_SUITE_P(sets, combined_monitors, ::testing::Values(both, monitor_choice::automatic),
                         [](const auto& one) { return one.index == 0 ? "chosen" : "automatic"; });

// Runs the body in a process of its own, which has no other cache.
template <class F>
int alone(F&& body) {
  child_process child([&](line&) {
    ::alarm(60);
    return body();
  });
  return child.reap();
}

// Discards memory in a way that the hooks do not see, and only userfaultfd tells; returns whether the cache noticed.
bool is_gone_when_discarded_inline(trusting& here, void* at) {
  const std::uint64_t before = here.device->opened;
  if (raw_call(SYS_madvise, at, bytes, MADV_DONTNEED) != 0) return false;
  return here.cache.acquire(at, bytes) && here.device->opened == before + 1;
}

// Checks a cache after the program took userfaultfd's number away. Returns 0, or the line that is wrong.
int finds_out_and_goes_on(trusting& here, void* kept) {
  void* const fresh = mapped();
  if (!here.keeps(fresh)) return __LINE__;
  if (here.cache.find(kept, bytes)) return __LINE__;  // kept on the word of the old userfaultfd, so invalidated
  if (here.cache.monitors() != "hooks+userfaultfd") return __LINE__;
  if (here.cache.statistics().monitor_failures != 1) return __LINE__;
  if (here.changes.size() != 1) return __LINE__;
  if (here.changes[0] != "userfaultfd failed: the program closed the userfaultfd descriptor; the monitor works again")
    return __LINE__;
  if (!here.keeps(kept) || !here.keeps(fresh)) return __LINE__;
  if (has_raw_calls && !is_gone_when_discarded_inline(here, fresh)) return __LINE__;
  if (has_raw_calls && !is_gone_when_discarded_inline(here, kept)) return __LINE__;
  const trusting another(both);
  if (another.cache.monitors() != "hooks+userfaultfd") return __LINE__;
  if (another.cache.statistics().monitor_failures != 0) return __LINE__;
  for (const auto& one : report_monitors().monitors)
    if (one.name == "userfaultfd" && !one.proven) return __LINE__;
  return here.cache.statistics().monitor_failures == 1 ? 0 : __LINE__;
}

struct lost_descriptor : combined_monitors {};

TEST_P(lost_descriptor, R53_closed_userfaultfd_is_detected_before_the_next_keep_and_replaced) {
  EXPECT_EQ(alone([&] {
              trusting here(GetParam());
              void* const kept = mapped();
              if (!here.keeps(kept)) return __LINE__;
              if (::syscall(SYS_close_range, 3U, ~0U, 0U) != 0) return __LINE__;
              return finds_out_and_goes_on(here, kept);
            }),
            0);
}

// The number is taken again, as by a program that closes its inherited descriptors and then opens its own.
TEST_P(lost_descriptor, R53_number_reused_by_the_programs_userfaultfd_is_detected) {
  EXPECT_EQ(alone([&] {
              trusting here(GetParam());
              void* const kept = mapped();
              if (!here.keeps(kept)) return __LINE__;
              const int number = the_userfaultfd();
              const auto programs = monitors::uffd::open();
              if (number < 0 || !programs || ::dup3(programs->number, number, O_CLOEXEC) != number) return __LINE__;
              if (const int wrong = finds_out_and_goes_on(here, kept); wrong != 0) return wrong;
              if (target_of(number) != "anon_inode:[userfaultfd]") return __LINE__;
              void* const watched = mapped();
              if (monitors::uffd::start_watching(number, pages_at(watched)) != 0) return __LINE__;
              return monitors::uffd::stop_watching(programs->number, pages_at(watched));
            }),
            0);
}

TEST_P(lost_descriptor, R53_programs_file_at_the_reused_number_stays_open_when_the_cache_ends) {
  EXPECT_EQ(alone([&] {
              const auto programs = monitors::uffd::open();
              int number = -1;
              {
                trusting here(GetParam());
                void* const kept = mapped();
                number = the_userfaultfd();
                if (number == programs->number) number = -1;
                for (int other = programs->number + 1; number < 0 && other < 1000; ++other)
                  if (target_of(other) == "anon_inode:[userfaultfd]") number = other;
                if (!here.keeps(kept) || ::dup3(programs->number, number, O_CLOEXEC) != number) return __LINE__;
              }
              return ::fcntl(number, F_GETFD) == FD_CLOEXEC ? 0 : __LINE__;
            }),
            0);
}

// Makes this process unable to make a userfaultfd from now on.
TEST_P(lost_descriptor, R53_cache_keeps_nothing_when_the_userfaultfd_cannot_be_replaced) {
  EXPECT_EQ(alone([&] {
              trusting here(GetParam());
              void* const kept = mapped();
              if (!here.keeps(kept) || !refuse_call(SYS_userfaultfd, EPERM)) return __LINE__;
              if (::syscall(SYS_close_range, 3U, ~0U, 0U) != 0) return __LINE__;
              if (here.cache.monitors() != "none (userfaultfd: the program closed the userfaultfd descriptor)")
                return __LINE__;
              void* const fresh = mapped();
              if (here.keeps(fresh) || here.keeps(kept)) return __LINE__;
              if (here.cache.statistics().unmonitored != 4) return __LINE__;
              if (here.cache.monitors() != "none (userfaultfd: this process may not use userfaultfd)") return __LINE__;
              if (here.changes.size() != 1) return __LINE__;
              if (here.changes[0].find("the monitor does not work: this process may not use") == std::string::npos)
                return __LINE__;
              const trusting another(both);
              return another.cache.monitors().starts_with("none (userfaultfd") ? 0 : __LINE__;
            }),
            0);
}

INSTANTIATE_TEST_SUITE_P(sets, lost_descriptor, ::testing::Values(both, monitor_choice::automatic),
                         [](const auto& one) { return one.index == 0 ? "chosen" : "automatic"; });

}  // namespace
}  // namespace pinfold::testing::monitor_trust_test
