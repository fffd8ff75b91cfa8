// SPDX-License-Identifier: BSD-3-Clause
// Sealed slabs are never stale, whatever a program tries: R50. io_uring shows what the kernel really reads.
#include "support/fixtures/local_fixture.hpp"
#include "support/hazards/memory_attacks.hpp"
#include "support/processes/child_process.hpp"

#include <pinfold/pools/registered_pool.hpp>
#include <pinfold/pools/sealed_arena.hpp>

#include <cstddef>
#include <fstream>
#include <iterator>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <optional>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace pinfold::testing::sealed_pool_test {
namespace {

constexpr std::size_t mib = std::size_t{1} << 20U;
constexpr std::size_t size = 2 * mib;

using pool_type = registered_pool<fake_registrar>;

std::optional<std::string> why_no_sealing() {
  local_fixture f;
  pool_type pool(f.cache, {.slab_bytes = 4096, .sealed = true});
  auto tried = pool.try_allocate(1);
  if (!tried) return describe(tried.error());
  pool.deallocate(*tried, 1);
  return std::nullopt;
}

std::optional<std::string> why_no_ring() {
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  if (::geteuid() != 0 && limit.rlim_cur < (64U << 20U))
    return "pins of a ring that has ended count on for a while, against a limit that is too small for it";
  io_uring ring{};
  const int outcome = ::io_uring_queue_init(2, &ring, 0);
  if (outcome != 0) return std::string("no io_uring: ") + std::strerror(-outcome);
  ::io_uring_queue_exit(&ring);
  return std::nullopt;
}

class sealed_pool : public ::testing::Test {
 protected:
  void SetUp() override {
    if (auto why = why_no_sealing()) GTEST_SKIP() << *why;
  }
};

void expect_never_stale(page_kind pages) {
  local_fixture f;
  pool_type pool(f.cache, {.slab_bytes = size, .pages = pages, .sealed = true});
  auto memory = pool.try_allocate(size, 4096);
  ASSERT_TRUE(memory) << describe(memory.error());
  EXPECT_TRUE(pool.slabs().at(0).sealed);
  const target at{static_cast<std::byte*>(*memory), size};
  for (const attack& one : attacks::all()) {
    const long stale = stale_after(one, at);
    std::printf("%-8s %-32s %s\n", name_of(pool.slabs().at(0).pages), one.name,
                stale < 0    ? "unknown to the kernel"
                : stale == 0 ? "fresh"
                             : "STALE");
    EXPECT_LE(stale, 0) << one.name;
  }
  pool.deallocate(*memory, size);
}

TEST_F(sealed_pool, R50_no_attack_makes_a_sealed_slab_stale) {
  if (auto why = why_no_ring()) GTEST_SKIP() << *why;
  expect_never_stale(page_kind::best);
  expect_never_stale(page_kind::plain);
}

// The control: the same attacks on unsealed memory. A test that could not find a stale byte would prove nothing.
TEST(unsealed_memory, R50_attacks_make_unsealed_memory_stale) {
  if (auto why = why_no_ring()) GTEST_SKIP() << *why;
  for (const attack& one : attacks::all()) {
    long worst = -1;
    for (const bool shared : {false, true}) {
      const int file = shared ? ::memfd_create("unsealed", MFD_CLOEXEC) : -1;
      if (shared) {
        ASSERT_EQ(::ftruncate(file, size), 0);
      }
      const int flags = shared ? MAP_SHARED : attacks::private_memory;
      void* const memory = ::mmap(nullptr, size, attacks::readable_writable, flags, file, 0);
      ASSERT_NE(memory, MAP_FAILED);
      worst = std::max(worst, stale_after(one, {static_cast<std::byte*>(memory), size}));
      ::munmap(memory, size);
      if (shared) ::close(file);
    }
    std::printf("unsealed %-32s %s\n", one.name, worst < 0 ? "unknown" : worst == 0 ? "fresh" : "STALE");
    if (one.bites && worst >= 0) {
      EXPECT_GT(worst, 0) << one.name;
    }
  }
}

TEST_F(sealed_pool, R50_slabs_return_to_the_arena_and_are_reused_by_the_next_pool) {
  local_fixture f;
  const auto before = sealed_arena::usage();
  void* first = nullptr;
  {
    pool_type pool(f.cache, {.slab_bytes = 3 * mib, .pages = page_kind::plain, .sealed = true});
    first = pool.allocate(3 * mib);
    std::memset(first, 0xab, 3 * mib);
    EXPECT_EQ(sealed_arena::usage().bytes, before.bytes + 3 * mib);
    EXPECT_EQ(sealed_arena::usage().idle, before.idle);
    pool.deallocate(first, 3 * mib);
    EXPECT_EQ(pool.trim(), 3 * mib);
  }
  EXPECT_EQ(f.device->open_count(), 0U) << "mapped for ever, but not registered";
  EXPECT_EQ(sealed_arena::usage().idle, before.idle + 3 * mib);
  for (const bool clear : {false, true}) {
    pool_type pool(f.cache, {.slab_bytes = 3 * mib, .pages = page_kind::plain, .clear = clear, .sealed = true});
    auto* const again = static_cast<unsigned char*>(pool.allocate(3 * mib));
    EXPECT_EQ(again, first);
    EXPECT_EQ(std::count(again, again + 3 * mib, clear ? 0 : 0xab), static_cast<std::ptrdiff_t>(3 * mib));
    pool.deallocate(again, 3 * mib);
  }
  EXPECT_EQ(sealed_arena::usage().bytes, before.bytes + 3 * mib) << "nothing more was sealed";
}

TEST_F(sealed_pool, R50_arena_is_bounded) {
  local_fixture f;
  const auto before = sealed_arena::usage();
  sealed_arena::set_limit(before.bytes + 5 * mib);
  pool_type pool(f.cache, {.slab_bytes = 5 * mib, .pages = page_kind::plain, .sealed = true});
  const auto refused = pool.try_allocate(7 * mib);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, errc::over_budget);
  EXPECT_EQ(sealed_arena::usage().bytes, before.bytes) << "and nothing is counted for it";
  sealed_arena::set_limit(before.bytes + 64 * mib);
  auto taken = pool.try_allocate(7 * mib);
  ASSERT_TRUE(taken) << describe(taken.error());
  pool.deallocate(*taken, 7 * mib);
  sealed_arena::set_limit(before.limit);
}

TEST_F(sealed_pool, R50_refused_registration_returns_the_slab_to_the_arena) {
  local_fixture f;
  f.device->capacity = 0;
  pool_type pool(f.cache, {.sealed = true});
  EXPECT_EQ(pool.try_allocate(1).error().code, errc::out_of_resources);
  EXPECT_EQ(pool.usage().bytes, 0U);
  const auto before = sealed_arena::usage();
  EXPECT_EQ(pool.try_allocate(1).error().code, errc::out_of_resources);
  EXPECT_EQ(sealed_arena::usage().bytes, before.bytes) << "the same slab was tried again";
  EXPECT_EQ(sealed_arena::usage().idle, before.idle);
}

bool has_sealed_mappings() {
  std::ifstream maps("/proc/self/maps");
  const std::string all{std::istreambuf_iterator<char>(maps), {}};
  return all.find("pinfold-sealed") != std::string::npos;
}

TEST_F(sealed_pool, R50_fork_children_have_no_sealed_mappings) {
  local_fixture f;
  pool_type pool(f.cache, {.slab_bytes = size, .pages = page_kind::plain, .sealed = true});
  void* const memory = pool.allocate(1);
  EXPECT_TRUE(has_sealed_mappings());
  child_process child([](line&) {
    if (has_sealed_mappings()) return 1;
    return sealed_arena::usage().bytes == 0 ? 0 : 2;
  });
  EXPECT_EQ(child.finish(), 0);
  pool.deallocate(memory, 1);
}

TEST(sealed_pool_in_child, R37_fork_while_a_thread_uses_the_arena_leaves_it_usable_in_the_child) {
  std::jthread user([](const std::stop_token& stop) {
    while (!stop.stop_requested()) static_cast<void>(sealed_arena::usage());
  });
  for (int i = 0; i < 200; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(100);
      ::_exit(sealed_arena::usage().bytes == 0 ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0) << (WIFSIGNALED(status) ? "the child hangs" : "the child has its parent's pieces");
  }
}

// Makes this process's kernel lack mseal(2) from here on, as before Linux 6.10.
bool forget_mseal() {
  constexpr unsigned number = 462;
  std::array<sock_filter, 4> program{sock_filter{BPF_LD | BPF_W | BPF_ABS, 0, 0, 0},
                                     sock_filter{BPF_JMP | BPF_JEQ | BPF_K, 0, 1, number},
                                     sock_filter{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | ENOSYS},
                                     sock_filter{BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(sealed_pool_in_child, R50_missing_mseal_is_reported) {
  child_process child([](line& talk) {
    if (!forget_mseal()) return 77;
    local_fixture f;
    pool_type pool(f.cache, {.sealed = true});
    const auto refused = pool.try_allocate(1);
    if (refused) return 1;
    talk.send(refused.error());
    return sealed_arena::usage().bytes == 0 ? 0 : 2;
  });
  const auto refused = child.talk().receive<error>();
  const int status = child.finish();
  if (status == 77) GTEST_SKIP() << "no seccomp here";
  ASSERT_EQ(status, 0);
  EXPECT_EQ(refused->code, errc::unsupported);
  EXPECT_EQ(refused->native, ENOSYS);
  EXPECT_NE(std::strstr(refused->message, "Linux 6.10"), nullptr);
}

}  // namespace
}  // namespace pinfold::testing::sealed_pool_test
