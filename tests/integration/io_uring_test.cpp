// SPDX-License-Identifier: BSD-3-Clause
// Real bytes through registered buffers, the kernel's own count of pinned memory, and an ordinary user's limits.
#include "support/test_ring.hpp"

#include <pinfold/cache.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <fstream>
#include <numeric>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace pinfold::testing {
namespace {

using cache_type = pinfold::cache<io_uring_registrar>;

cache_options keeping(cache_options options = {}) {
  options.monitor = monitor_choice::explicit_;
  return options;
}

io_uring_registrar registrar_on(test_ring& ring, unsigned slots = 16384) {
  auto made = io_uring_registrar::create(ring.get(), {.slots = slots});
  if (!made) throw std::runtime_error(describe(made.error()));
  return std::move(*made);
}

/// Bytes that this process has pinned, as the kernel counts them.
std::size_t pinned() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == "VmPin:") {
      std::size_t kilobytes = 0;
      status >> kilobytes;
      return kilobytes * 1024;
    }
  return 0;
}

std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> made(bytes);
  for (auto& one : made) one = static_cast<std::byte>((seed = seed * 1103515245 + 12345) >> 16U);
  return made;
}

struct scratch_file {
  int descriptor = ::memfd_create("pinfold-test", MFD_CLOEXEC);
  ~scratch_file() { ::close(descriptor); }
};

TEST(io_uring_cache, bytes_arrive_through_containment_hits) {
  test_ring ring;
  cache_type cache(registrar_on(ring), keeping());
  scratch_file file;
  auto sent = pattern(1 << 20, 7);
  std::vector<std::byte> got(sent.size());
  auto whole = cache.acquire(sent);
  ASSERT_TRUE(whole) << describe(whole.error());
  for (std::size_t at = 0; at < sent.size(); at += 65536) {
    auto part = cache.acquire(sent.data() + at, 65536);
    auto into = cache.acquire(got.data() + at, 65536);
    ASSERT_TRUE(part && into);
    ASSERT_EQ(ring.write(file.descriptor, sent.data() + at, 65536, at, part->handle().index), 65536);
    ASSERT_EQ(ring.read(file.descriptor, got.data() + at, 65536, at, into->handle().index), 65536);
  }
  EXPECT_EQ(sent, got);
  EXPECT_EQ(cache.statistics().hits, sent.size() / 65536);
}

TEST(io_uring_cache, R20_R21_the_kernel_counts_one_registration_and_none_after_flush) {
  const auto start = pinned();
  test_ring ring;
  cache_type cache(registrar_on(ring), keeping());
  void* const memory = ::mmap(nullptr, 0x6000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  auto* const base = static_cast<std::byte*>(memory);
  auto outer = cache.acquire(base + 0x1000, 0x3000);
  const auto with_outer = pinned();
  EXPECT_EQ(with_outer, start + 0x3000);
  auto inner = cache.acquire(base + 0x2000, 0x1000);
  EXPECT_EQ(pinned(), with_outer) << "a hit inside registers nothing";
  EXPECT_TRUE(outer->release());
  EXPECT_EQ(pinned(), with_outer);
  EXPECT_TRUE(inner->release());
  EXPECT_EQ(pinned(), with_outer) << "idle, not closed";
  EXPECT_TRUE(cache.flush());
  for (int i = 0; i < 1000 && pinned() != start; ++i) ::usleep(1000);  // the kernel unpins behind a grace period
  EXPECT_EQ(pinned(), start);
  ::munmap(memory, 0x6000);
}

TEST(io_uring_cache, stale_registration_brings_old_bytes_and_the_cache_does_not) {
  test_ring ring;
  scratch_file file;
  cache_type cache(registrar_on(ring), keeping());
  constexpr std::size_t bytes = 65536;
  void* const first = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::memset(first, 'A', bytes);
  auto kept = cache.acquire(first, bytes);
  ASSERT_TRUE(kept);

  cache.invalidate(first, bytes);
  ::munmap(first, bytes);
  ASSERT_EQ(::mmap(first, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0),
            first);
  std::memset(first, 'B', bytes);

  std::vector<char> seen(bytes);
  const auto arrived = [&](std::uint32_t index) {
    EXPECT_EQ(ring.write(file.descriptor, first, bytes, 0, index), static_cast<int>(bytes));
    EXPECT_EQ(::pread(file.descriptor, seen.data(), bytes, 0), static_cast<ssize_t>(bytes));
    return seen[0] == seen[bytes - 1] ? seen[0] : '?';
  };
  EXPECT_TRUE(kept->stale());
  EXPECT_EQ(arrived(kept->handle().index), 'A') << "the danger is real: the old registration moves the old bytes";
  auto fresh = cache.acquire(first, bytes);
  ASSERT_TRUE(fresh);
  EXPECT_EQ(arrived(fresh->handle().index), 'B');
  ::munmap(first, bytes);
}

TEST(io_uring_cache, R28_full_table_evicts_and_goes_on) {
  test_ring ring;
  cache_type cache(registrar_on(ring, 8), keeping());
  std::vector<std::vector<std::byte>> buffers;
  for (unsigned i = 0; i < 40; ++i) buffers.push_back(pattern(65536, i));
  for (const auto& one : buffers) ASSERT_TRUE(cache.acquire(one));
  EXPECT_EQ(cache.statistics().open_now, 8U);
  EXPECT_EQ(cache.statistics().evicted, 32U);
  std::vector<cache_type::lease> held;
  for (unsigned i = 0; i < 8; ++i) held.push_back(std::move(*cache.acquire(buffers[i])));
  EXPECT_EQ(cache.acquire(buffers[20]).error().code, errc::out_of_resources);
}

TEST(io_uring_cache, R26_many_slots_with_one_system_call) {
  test_ring ring;
  cache_type cache(registrar_on(ring), keeping());
  const std::size_t count = ::geteuid() == 0 ? 10'000 : 1'000;  // an ordinary user may not pin 40 MB
  void* const memory = ::mmap(nullptr, 2 * count * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  std::vector<range> ranges;
  for (std::size_t i = 0; i < count; ++i) {
    const auto begin = reinterpret_cast<std::uintptr_t>(memory) + 2 * i * 4096;
    ranges.push_back({begin, begin + 4096});
  }
  const auto before = cache.backend().calls();
  auto batch = cache.acquire_batch(ranges, local_access, {.workers = 1});
  ASSERT_TRUE(batch) << describe(batch.error());
  EXPECT_LE(cache.backend().calls() - before, count / 64 + 1);
  batch = {};
  ::munmap(memory, 2 * count * 4096);
}

TEST(io_uring_registrar, says_why_it_refuses) {
  EXPECT_EQ(io_uring_registrar::create(nullptr).error().code, errc::invalid_argument);
  test_ring ring;
  auto first = registrar_on(ring);
  EXPECT_EQ(io_uring_registrar::create(ring.get()).error().code, errc::in_use_conflict);
  EXPECT_EQ(first.close({99}).error().code, errc::invalid_argument);
  const auto* const text = "constant";
  auto constant = range::of(reinterpret_cast<std::uintptr_t>(text), 8);
  auto refused = first.open(*constant, local_access);
  ASSERT_FALSE(refused) << "memory that cannot be written";
  EXPECT_EQ(refused.error().native, EFAULT);
}

TEST(io_uring_registrar, takes_fewer_slots_where_the_kernel_gives_fewer) {
  test_ring ring;
  auto made = io_uring_registrar::create(ring.get(), {.slots = 1U << 20U});
  ASSERT_TRUE(made) << describe(made.error());
  EXPECT_EQ(made->slots(), 16384U);
}

// In a child: becomes an ordinary user who may lock 8 MiB, and moves 64 MiB in pieces of 64 KiB through the cache.
int move_as_ordinary_user() {
  const rlimit limit{8 << 20, 8 << 20};
  if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return 2;
  if (::geteuid() == 0 && (::setresgid(65534, 65534, 65534) != 0 || ::setresuid(65534, 65534, 65534) != 0)) return 2;
  test_ring ring;
  cache_type cache(registrar_on(ring), keeping());
  scratch_file file;
  const auto sent = pattern(64 << 20, 3);
  std::vector<std::byte> got(65536);
  for (std::size_t at = 0; at < sent.size(); at += 65536) {
    auto part = cache.acquire(sent.data() + at, 65536);
    if (!part) return std::fprintf(stderr, "%s\n", describe(part.error()).c_str()), 1;
    if (ring.write(file.descriptor, sent.data() + at, 65536, 0, part->handle().index) != 65536) return 1;
    if (::pread(file.descriptor, got.data(), got.size(), 0) != 65536) return 1;
    if (std::memcmp(got.data(), sent.data() + at, got.size()) != 0) return 1;
  }
  return cache.statistics().evicted > 0 ? 0 : 3;
}

TEST(io_uring_cache, R28_an_ordinary_user_with_8_MiB_goes_on_by_eviction) {
  const auto child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    int status = 1;
    try {
      status = move_as_ordinary_user();
    } catch (const std::exception& failed) {
      std::fprintf(stderr, "%s\n", failed.what());
    }
    ::_exit(status);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "the limit cannot be set here";
  EXPECT_EQ(WEXITSTATUS(status), 0) << "3: nothing had to be evicted";
}

}  // namespace
}  // namespace pinfold::testing
