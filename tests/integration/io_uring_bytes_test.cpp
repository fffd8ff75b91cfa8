// SPDX-License-Identifier: BSD-3-Clause
// Real bytes through registered buffers: they arrive, old bytes do not, and an ordinary user's limits suffice.
#include "support/doubles/test_ring.hpp"
#include "support/fixtures/local_fixture.hpp"
#include "support/processes/child_process.hpp"

#include <cstdio>
#include <cstring>
#include <memory>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace pinfold::testing::io_uring_bytes_test {
namespace {

using cache_type = pinfold::cache<io_uring_registrar>;

std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> made(bytes);
  for (auto& one : made) one = static_cast<std::byte>((seed = seed * 1103515245 + 12345) >> 16U);
  return made;
}

struct scratch_file {
  int descriptor = ::memfd_create("pinfold-test", MFD_CLOEXEC);
  ~scratch_file() { ::close(descriptor); }
};

TEST(io_uring_cache, hits_inside_a_registration_transfer_the_right_bytes) {
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
    ASSERT_EQ(ring.write(file.descriptor, sent.data() + at, 65536, at, part->registration().index), 65536);
    ASSERT_EQ(ring.read(file.descriptor, got.data() + at, 65536, at, into->registration().index), 65536);
  }
  EXPECT_EQ(sent, got);
  EXPECT_EQ(cache.statistics().hits, sent.size() / 65536);
}

// The ring and its buffer table are the parent's.
TEST(io_uring_cache, R37_fork_child_that_destroys_its_cache_does_not_affect_the_parent) {
  test_ring ring;
  scratch_file file;
  const auto sent = pattern(4096, 7);
  auto cache = std::make_unique<cache_type>(registrar_on(ring), keeping());
  const auto held = cache->acquire(sent);
  ASSERT_TRUE(held) << describe(held.error());
  child_process child([&](line&) {
    cache.reset();
    return 0;
  });
  EXPECT_EQ(child.reap(), 0);
  EXPECT_EQ(ring.write(file.descriptor, sent.data(), 4096, 0, held->registration().index), 4096);
}

TEST(io_uring_cache, stale_registration_sends_old_bytes_and_the_cache_does_not) {
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
  EXPECT_EQ(arrived(kept->registration().index), 'A') << "the danger is real: the old registration moves the old bytes";
  auto fresh = cache.acquire(first, bytes);
  ASSERT_TRUE(fresh);
  EXPECT_EQ(arrived(fresh->registration().index), 'B');
  ::munmap(first, bytes);
}

/// Becomes an ordinary user that no other process is: the kernel counts memory that rings lock by user, and what
/// another process of the user has locked cannot be evicted here.
bool become_a_user_of_its_own() {
  const auto id = 40'000 + static_cast<unsigned>(::getpid()) % 20'000;
  return ::setresgid(id, id, id) == 0 && ::setresuid(id, id, id) == 0;
}

// Runs in a child: becomes an ordinary user with a limit of 8 MiB, and moves 64 MiB in pieces of 64 KiB through the
// cache.
int move_as_ordinary_user() {
  const rlimit limit{8 << 20, 8 << 20};
  if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return 2;
  if (::geteuid() == 0 && !become_a_user_of_its_own()) return 2;
  test_ring ring;
  cache_type cache(registrar_on(ring), keeping());
  scratch_file file;
  const auto sent = pattern(64 << 20, 3);
  std::vector<std::byte> got(65536);
  for (std::size_t at = 0; at < sent.size(); at += 65536) {
    auto part = cache.acquire(sent.data() + at, 65536);
    if (!part) return std::fprintf(stderr, "%s\n", describe(part.error()).c_str()), 1;
    if (ring.write(file.descriptor, sent.data() + at, 65536, 0, part->registration().index) != 65536) return 1;
    if (::pread(file.descriptor, got.data(), got.size(), 0) != 65536) return 1;
    if (std::memcmp(got.data(), sent.data() + at, got.size()) != 0) return 1;
  }
  return cache.statistics().evicted > 0 ? 0 : 3;
}

TEST(io_uring_cache, R28_ordinary_user_with_8_MiB_moves_more_by_eviction) {
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
}  // namespace pinfold::testing::io_uring_bytes_test
