// SPDX-License-Identifier: BSD-3-Clause
// The special features of the small registrars; tests/conformance has their common ones.
#include "support/doubles/fake_registrar.hpp"
#include "support/host/process_limits.hpp"

#include <pinfold/cache.hpp>
#include <pinfold/registrars/mlock.hpp>
#include <pinfold/registrars/null.hpp>
#include <pinfold/registrars/trace.hpp>

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <optional>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace pinfold::testing::registrars_test {
namespace {

std::size_t locked_pages() { return counted_by_kernel("VmLck") / 4096; }

TEST(mlock_registrar, nested_locks_are_counted) {
  void* const memory = ::mmap(nullptr, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto base = reinterpret_cast<std::uintptr_t>(memory);
  const auto start = locked_pages();
  mlock_registrar registrar;
  auto outer = registrar.open({base, base + 6 * 4096}, local_access);
  auto inner = registrar.open({base + 2 * 4096 + 100, base + 3 * 4096 - 100}, local_access);
  auto beyond = registrar.open({base + 5 * 4096, base + 8 * 4096}, local_access);
  ASSERT_TRUE(outer && inner && beyond);
  EXPECT_EQ(locked_pages(), start + 8);
  EXPECT_TRUE(registrar.close(*outer));
  EXPECT_EQ(locked_pages(), start + 4) << "the inner one's page, and the three of the other";
  EXPECT_TRUE(registrar.close(*inner));
  EXPECT_EQ(locked_pages(), start + 3);
  EXPECT_EQ(registrar.close(*inner).error().code, errc::invalid_argument);
  EXPECT_TRUE(registrar.close(*beyond));
  EXPECT_EQ(locked_pages(), start);
  ::munmap(memory, 8 * 4096);
}

/// Locks memory directly, as a program would.
void lock_here(std::uintptr_t begin, std::size_t pages) { ASSERT_EQ(::syscall(SYS_mlock, begin, pages * 4096), 0); }

TEST(mlock_registrar, memory_locked_by_the_program_stays_locked) {
  void* const memory = ::mmap(nullptr, 16 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto base = reinterpret_cast<std::uintptr_t>(memory);
  const auto start = locked_pages();
  lock_here(base + 2 * 4096, 2);
  lock_here(base + 8 * 4096, 1);
  lock_here(base + 14 * 4096, 2);
  mlock_registrar registrar;
  auto inner = registrar.open({base + 3 * 4096, base + 5 * 4096}, local_access);
  auto outer = registrar.open({base, base + 15 * 4096}, local_access);
  ASSERT_TRUE(inner && outer);
  EXPECT_EQ(locked_pages(), start + 16);
  EXPECT_TRUE(registrar.close(*outer));
  EXPECT_EQ(locked_pages(), start + 6) << "what the program locked, and the inner one's second page";
  EXPECT_TRUE(registrar.close(*inner));
  EXPECT_EQ(locked_pages(), start + 5);
  ::syscall(SYS_munlock, base, 16 * 4096);
  auto again = registrar.open({base, base + 15 * 4096}, local_access);
  ASSERT_TRUE(again && registrar.close(*again));
  EXPECT_EQ(locked_pages(), start) << "the program's locks of before are forgotten";
  ::munmap(memory, 16 * 4096);
}

TEST(mlock_registrar, refused_open_keeps_the_locks_of_the_program) {
  void* const memory = ::mmap(nullptr, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto base = reinterpret_cast<std::uintptr_t>(memory);
  ::mprotect(static_cast<char*>(memory) + 6 * 4096, 2 * 4096, PROT_NONE);
  const auto start = locked_pages();
  lock_here(base + 2 * 4096, 2);
  mlock_registrar registrar;
  EXPECT_FALSE(registrar.open({base, base + 8 * 4096}, local_access));
  EXPECT_EQ(locked_pages(), start + 2);
  ::munmap(memory, 8 * 4096);
}

TEST(mlock_registrar, two_registrars_share_their_counts) {
  void* const memory = ::mmap(nullptr, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto base = reinterpret_cast<std::uintptr_t>(memory);
  const auto start = locked_pages();
  mlock_registrar one, other;
  auto first = one.open({base, base + 3 * 4096}, local_access);
  auto second = other.open({base + 4096, base + 4 * 4096}, local_access);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(one.close({base + 4096, base + 4 * 4096}).error().code, errc::invalid_argument) << "it is the other's";
  EXPECT_TRUE(one.close(*first));
  EXPECT_EQ(locked_pages(), start + 3);
  EXPECT_TRUE(other.close(*second));
  EXPECT_EQ(locked_pages(), start);
  ::munmap(memory, 4 * 4096);
}

TEST(mlock_registrar, fork_child_has_its_own_locks) {
  void* const memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto base = reinterpret_cast<std::uintptr_t>(memory);
  mlock_registrar registrar;
  auto held = registrar.open({base, base + 4096}, local_access);
  ASSERT_TRUE(held);
  const pid_t child = ::fork();
  if (child == 0) {
    bool right = registrar.close(*held).error().code == errc::closed && locked_pages() == 0;
    mlock_registrar own;
    auto made = own.open({base, base + 4096}, local_access);
    right = right && made && locked_pages() == 1 && own.close(*made) && locked_pages() == 0;
    ::_exit(right ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(registrar.close(*held));
  ::munmap(memory, 4096);
}

TEST(mlock_registrar, close_of_a_partly_unmapped_range_unlocks_the_other_pages) {
  const auto start = locked_pages();
  void* const memory = ::mmap(nullptr, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto base = reinterpret_cast<std::uintptr_t>(memory);
  mlock_registrar registrar;
  auto made = registrar.open({base, base + 8 * 4096}, local_access);
  ASSERT_TRUE(made);
  for (const std::ptrdiff_t page : {0, 2, 4, 5}) ::munmap(static_cast<char*>(memory) + page * 4096, 4096);
  EXPECT_TRUE(registrar.close(*made));
  EXPECT_EQ(locked_pages(), start);
  ::munmap(memory, 8 * 4096);
}

TEST(mlock_registrar, close_of_an_unmapped_range_succeeds) {
  void* const memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mlock_registrar registrar;
  auto made = registrar.open({reinterpret_cast<std::uintptr_t>(memory), reinterpret_cast<std::uintptr_t>(memory) + 64},
                             local_access);
  ASSERT_TRUE(made);
  ::munmap(memory, 4096);
  EXPECT_TRUE(registrar.close(*made));
}

TEST(mlock_registrar, inaccessible_memory_is_not_reported_as_out_of_resources) {
  void* const memory = ::mmap(nullptr, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto base = reinterpret_cast<std::uintptr_t>(memory);
  ::mprotect(static_cast<char*>(memory) + 6 * 4096, 2 * 4096, PROT_NONE);
  const auto start = locked_pages();
  mlock_registrar registrar;
  auto held = registrar.open({base, base + 4 * 4096}, local_access);
  ASSERT_TRUE(held) << describe(held.error());
  for (const rlim_t limit : {rlim_t{4}, rlim_t{64}}) {
    const lowered_limit few(RLIMIT_MEMLOCK, limit * 4096);
    if (limit == 4 && ::geteuid() != 0) {
      EXPECT_EQ(registrar.open({base, base + 5 * 4096}, local_access).error().code, errc::out_of_resources);
      continue;  // this registrar does not check whether the memory can be accessed
    }
    auto refused = registrar.open({base + 2 * 4096, base + 8 * 4096}, local_access);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, errc::invalid_range) << describe(refused.error());
  }
  EXPECT_EQ(locked_pages(), start + 4) << "and leaves nothing";
  EXPECT_TRUE(registrar.close(*held));
  ::munmap(memory, 8 * 4096);
}

TEST(mlock_registrar, half_the_address_space_is_refused_at_once) {
  mlock_registrar registrar;
  EXPECT_EQ(registrar.open({0, std::uintptr_t{1} << 46U}, local_access).error().code, errc::invalid_range);
}

TEST(mlock_registrar, assignment_to_a_registrar_unlocks_its_memory) {
  void* const memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  const auto base = reinterpret_cast<std::uintptr_t>(memory);
  const auto start = locked_pages();
  mlock_registrar registrar;
  ASSERT_TRUE(registrar.open({base, base + 4096}, local_access));
  registrar = mlock_registrar();
  EXPECT_EQ(locked_pages(), start);
  ::munmap(memory, 4096);
}

TEST(trace_registrar, reports_every_call) {
  std::vector<traced_call> heard;
  trace_registrar registrar(null_registrar{}, [&](const traced_call& call) { heard.push_back(call); });
  auto made = registrar.open({100, 200}, access_flags::local_read);
  ASSERT_TRUE(made);
  EXPECT_TRUE(registrar.close(*made));
  ASSERT_EQ(heard.size(), 2U);
  EXPECT_EQ(heard[0].what, traced_call::kind::open);
  EXPECT_EQ(heard[0].memory, (range{100, 200}));
  EXPECT_EQ(heard[0].access, access_flags::local_read);
  EXPECT_EQ(heard[0].failure, nullptr);
  EXPECT_EQ(heard[1].what, traced_call::kind::close);
  EXPECT_EQ(heard[1].memory, (range{100, 200}));
}

TEST(trace_registrar, R26_batch_is_one_call_of_the_inner_registrar) {
  std::size_t told = 0;
  std::size_t closed = 0;
  auto device = std::make_shared<fake_device>();
  const auto listen = [&](const traced_call& call) {
    EXPECT_EQ(call.memory.size(), 64U);
    if (call.what == traced_call::kind::close) return void(++closed);
    EXPECT_EQ(call.together, 50U);
    EXPECT_EQ(call.failure != nullptr, call.memory.begin == 0x30000);
    ++told;
  };
  trace_registrar registrar(fake_group_registrar{device}, listen);
  static_assert(group_registrar<decltype(registrar)>);
  static_assert(!group_registrar<trace_registrar<fake_registrar>>);
  std::vector<range> ranges;
  for (std::uintptr_t i = 1; i <= 50; ++i) ranges.push_back({i * 0x10000, i * 0x10000 + 64});
  device->fail_opens([](const range& memory, access_flags) -> std::optional<error> {
    if (memory.begin != 0x30000) return std::nullopt;
    return error{errc::driver_error, native_kind::posix, 5, "no"};
  });
  std::vector<result<decltype(registrar)::registration_type>> made(ranges.size());
  registrar.open_many(ranges, local_access, made);
  EXPECT_EQ(device->calls, 1U);
  EXPECT_EQ(told, 50U);
  for (const auto& one : made) {
    if (!one) continue;
    EXPECT_EQ(device->now().at(one->key).memory, one->traced);
    EXPECT_TRUE(registrar.close(*one));
  }
  EXPECT_EQ(closed, 49U);
  EXPECT_EQ(device->open_count(), 0U);
}

TEST(trace_registrar, R26_cache_uses_open_many_through_the_trace_registrar) {
  auto device = std::make_shared<fake_device>();
  cache cache(trace_registrar(fake_group_registrar{device}, nullptr), {.monitor = monitor_choice::manual});
  std::vector<range> ranges;
  for (std::uintptr_t i = 1; i <= 640; ++i) ranges.push_back({i * 0x10000, i * 0x10000 + 64});
  auto batch = cache.acquire_batch(ranges, local_access, {.workers = 1});
  ASSERT_TRUE(batch);
  EXPECT_EQ(device->calls, 10U);
  EXPECT_EQ(device->now().at((*batch)[7].registration().key).memory, ranges[7]) << "a handle is the registrar's own";
}

struct large_registrar {
  static constexpr const char* name = "large";
  struct registration_type {
    std::array<std::byte, max_registration_bytes> all{};
  };
  [[nodiscard]] registrar_limits limits() const noexcept { return {}; }
  [[nodiscard]] result<registration_type> open(range, access_flags) noexcept { return registration_type{}; }
  [[nodiscard]] result<void> close(const registration_type&) noexcept { return {}; }
};

TEST(trace_registrar, large_registrations_are_traced_without_a_range) {
  std::vector<range> heard;
  trace_registrar registrar(large_registrar{}, [&](const traced_call& call) { heard.push_back(call.memory); });
  auto made = registrar.open({100, 200}, local_access);
  ASSERT_TRUE(made);
  EXPECT_TRUE(registrar.close(*made));
  EXPECT_EQ(heard, (std::vector<range>{{100, 200}, {}}));
}

}  // namespace
}  // namespace pinfold::testing::registrars_test
