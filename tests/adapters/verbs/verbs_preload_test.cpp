// SPDX-License-Identifier: BSD-3-Clause
// The preloaded library over a libibverbs whose regions are numbered: a key that is older than the memory is stale.
#include "adapters/verbs/fake_libibverbs.h"
#include "support/host/settings.hpp"
#include "support/processes/child_process.hpp"
#include "support/processes/in_child.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <set>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace pinfold::testing {
namespace {

constexpr std::size_t bytes = 64 << 10;
constexpr int every_access =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC;

char* mapped(void* at = nullptr) {
  void* const memory =
      ::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at != nullptr ? MAP_FIXED : 0), -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return static_cast<char*>(memory);
}

bool is_preloaded() {
  Dl_info where{};
  void* const first = ::dlsym(RTLD_DEFAULT, "ibv_dereg_mr");
  return ::dladdr(first, &where) != 0 && std::strstr(where.dli_fname, "libpinfold-verbs-preload") != nullptr;
}

class verbs_preload : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!PINFOLD_HAS_ADAPTER) GTEST_SKIP() << "the adapter is not in this build";
    ASSERT_TRUE(is_preloaded()) << "set LD_PRELOAD";
    fake_verbs = {};
    device.device = &about_device;
    pd.context = &device;
    other_pd.context = &device;
    memory = mapped();
  }

  void TearDown() override {
    if (memory == nullptr) return;
    EXPECT_EQ(::ibv_dealloc_pd(&pd), 0);
    EXPECT_EQ(::ibv_dealloc_pd(&other_pd), 0);
    EXPECT_EQ(fake_verbs.open, 0U);
    ::munmap(memory, bytes);
  }

  ibv_mr* registered(void* at, int access = every_access) { return ibv_reg_mr(&pd, at, bytes, access); }

  // Registers and deregisters twice, and returns how many regions the driver made for that.
  std::uint32_t opens_of_two(unsigned access) {
    const auto before = fake_verbs.opens;
    for (int i = 0; i < 2; ++i) {
      ibv_mr* const mr = ibv_reg_mr(&pd, memory, bytes, access);
      EXPECT_NE(mr, nullptr);
      if (mr == nullptr) return 0;
      EXPECT_EQ(::ibv_dereg_mr(mr), 0);
    }
    return fake_verbs.opens - before;
  }

  ibv_device about_device{};
  ibv_context device{};
  ibv_pd pd{};
  ibv_pd other_pd{};
  char* memory = nullptr;
};

TEST_F(verbs_preload, callers_of_the_same_memory_share_its_keys) {
  ibv_mr* const one = registered(memory);
  ibv_mr* const part = ibv_reg_mr(&pd, memory + 4096, 4096, every_access);
  ASSERT_TRUE(one != nullptr && part != nullptr && one != part);
  EXPECT_EQ(one->lkey, part->lkey);
  EXPECT_EQ(one->rkey, part->rkey);
  EXPECT_EQ(one->handle, part->handle);
  EXPECT_EQ(part->pd, &pd);
  EXPECT_EQ(part->context, &device);
  EXPECT_EQ(one->addr, memory);
  EXPECT_EQ(one->length, bytes);
  EXPECT_EQ(part->addr, memory + 4096);
  EXPECT_EQ(part->length, 4096U);
  EXPECT_EQ(::ibv_dereg_mr(one), 0);
  EXPECT_EQ(fake_verbs.open, 1U);
  EXPECT_EQ(::ibv_dereg_mr(part), 0);
  EXPECT_EQ(fake_verbs.opens, 1U);
  EXPECT_EQ(fake_verbs.open, 1U) << "kept for the next caller";
}

TEST_F(verbs_preload, memory_that_was_mapped_anew_is_registered_anew) {
  for (std::uint32_t round = 1; round <= 20; ++round) {
    for (int i = 0; i < 3; ++i) {
      ibv_mr* const mr = registered(memory);
      EXPECT_EQ(mr->lkey, round);
      EXPECT_EQ(::ibv_dereg_mr(mr), 0);
    }
    mapped(memory);
  }
}

TEST_F(verbs_preload, all_calls_use_the_cache) {
  const auto at = reinterpret_cast<std::uintptr_t>(memory);
  volatile unsigned access = every_access;  // not constant: the macro calls ibv_reg_mr_iova2
  for (ibv_mr* mr : {registered(memory), ibv_reg_mr(&pd, memory, bytes, access),
                     ibv_reg_mr_iova(&pd, memory, bytes, at, every_access),
                     ::ibv_reg_mr_iova2(&pd, memory, bytes, at, every_access)}) {
    ASSERT_NE(mr, nullptr);
    EXPECT_EQ(::ibv_dereg_mr(mr), 0);
  }
  EXPECT_EQ(fake_verbs.opens, 1U);
}

TEST_F(verbs_preload, relaxed_ordering_is_part_of_the_key) {
  constexpr unsigned relaxed = every_access | IBV_ACCESS_RELAXED_ORDERING;
  EXPECT_EQ(opens_of_two(relaxed), 1U);
  EXPECT_EQ(fake_verbs.last_access, relaxed);
  EXPECT_EQ(opens_of_two(every_access), 1U) << "another region";
  EXPECT_EQ(fake_verbs.last_access, static_cast<unsigned>(every_access));
  EXPECT_EQ(opens_of_two(relaxed), 0U);
}

TEST_F(verbs_preload, more_access_is_registered_anew) {
  EXPECT_EQ(opens_of_two(0), 1U);
  EXPECT_EQ(fake_verbs.last_access, 0U);
  EXPECT_EQ(opens_of_two(IBV_ACCESS_REMOTE_READ), 1U);
  EXPECT_EQ(fake_verbs.last_access, static_cast<unsigned>(IBV_ACCESS_REMOTE_READ));
}

TEST_F(verbs_preload, what_callers_cannot_share_passes_through) {
  EXPECT_EQ(opens_of_two(every_access), 1U);
  for (const unsigned flag : {IBV_ACCESS_MW_BIND, IBV_ACCESS_ZERO_BASED, IBV_ACCESS_ON_DEMAND, IBV_ACCESS_HUGETLB})
    EXPECT_EQ(opens_of_two(every_access | flag), 2U) << flag;
  ibv_mr* const elsewhere = ::ibv_reg_mr_iova2(&pd, memory, bytes, 0, every_access);
  ASSERT_NE(elsewhere, nullptr);
  EXPECT_EQ(elsewhere->lkey, fake_verbs.opens);
  EXPECT_EQ(::ibv_dereg_mr(elsewhere), 0);
  EXPECT_EQ(opens_of_two(every_access), 0U) << "still cached";
}

TEST_F(verbs_preload, the_statistics_say_what_passed_through) {
  ::setenv("PINFOLD_STATISTICS_AT_EXIT", "on", 1);
  EXPECT_EQ(opens_of_two(every_access), 1U);
  EXPECT_EQ(opens_of_two(IBV_ACCESS_MW_BIND), 2U);
  ::unsetenv("PINFOLD_STATISTICS_AT_EXIT");
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(::ibv_dealloc_pd(&pd), 0);
  const auto said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("statistics: hits=1 "), std::string::npos) << said;
  EXPECT_NE(said.find("passed_through=2\n"), std::string::npos) << said;
}

TEST_F(verbs_preload, pds_share_nothing) {
  EXPECT_EQ(opens_of_two(every_access), 1U);
  ibv_mr* const mr = ibv_reg_mr(&other_pd, memory, bytes, every_access);
  EXPECT_EQ(mr->pd, &other_pd);
  EXPECT_EQ(fake_verbs.opens, 2U);
  EXPECT_EQ(::ibv_dereg_mr(mr), 0);
}

TEST_F(verbs_preload, a_pd_with_regions_is_busy_and_otherwise_flushed) {
  ibv_mr* const mr = registered(memory);
  EXPECT_EQ(::ibv_dealloc_pd(&pd), EBUSY);
  EXPECT_EQ(fake_verbs.pds_closed, 0);
  EXPECT_EQ(::ibv_dereg_mr(mr), 0);
  EXPECT_EQ(fake_verbs.open, 1U);
  EXPECT_EQ(::ibv_dealloc_pd(&pd), 0);
  EXPECT_EQ(fake_verbs.open, 0U);
  EXPECT_EQ(fake_verbs.pds_closed, 1);
  EXPECT_EQ(opens_of_two(every_access), 1U) << "another pd at the same address";
}

TEST_F(verbs_preload, closing_a_device_deregisters_what_is_cached) {
  EXPECT_EQ(opens_of_two(every_access), 1U);
  EXPECT_EQ(fake_verbs.open, 1U);
  EXPECT_EQ(::ibv_close_device(&device), 0);
  EXPECT_EQ(fake_verbs.open, 0U);
  EXPECT_EQ(fake_verbs.devices_closed, 1);
}

TEST_F(verbs_preload, the_drivers_error_reaches_the_program) {
  fake_verbs.refusal = EACCES;
  EXPECT_EQ(registered(memory), nullptr);
  EXPECT_EQ(errno, EACCES);
  fake_verbs.refusal = 0;
  fake_verbs.no_access = IBV_ACCESS_REMOTE_ATOMIC;
  EXPECT_EQ(registered(memory), nullptr);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(opens_of_two(IBV_ACCESS_LOCAL_WRITE), 1U);
}

TEST_F(verbs_preload, reregistering_moves_a_region) {
  char* const other = mapped();
  ibv_mr* const mr = registered(memory);
  const auto old_key = mr->lkey;
  EXPECT_EQ(::ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, other, bytes, 0), 0);
  EXPECT_EQ(mr->addr, other);
  EXPECT_NE(mr->lkey, old_key);
  EXPECT_EQ(fake_verbs.last_access, static_cast<unsigned>(every_access)) << "unchanged";
  EXPECT_EQ(::ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, &other_pd, nullptr, 0, 0), 0);
  EXPECT_EQ(mr->pd, &other_pd);
  EXPECT_EQ(mr->addr, other);
  EXPECT_EQ(fake_verbs.rereg_calls, 0U);
  EXPECT_EQ(::ibv_dereg_mr(mr), 0);
  EXPECT_EQ(opens_of_two(every_access), 0U) << "the old one is still cached";
  ::munmap(other, bytes);
}

TEST_F(verbs_preload, reregistering_to_access_that_cannot_be_shared_makes_an_own_region) {
  ibv_mr* const mr = registered(memory);
  const auto open = fake_verbs.open;
  EXPECT_EQ(::ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, every_access | IBV_ACCESS_MW_BIND), 0);
  EXPECT_EQ(mr->lkey, fake_verbs.opens);
  EXPECT_EQ(fake_verbs.open, open + 1);
  EXPECT_EQ(::ibv_dereg_mr(mr), 0);
  EXPECT_EQ(fake_verbs.open, open);
}

TEST_F(verbs_preload, reregistering_that_fails_leaves_the_region) {
  char* const other = mapped();
  ibv_mr* const mr = registered(memory);
  const auto key = mr->lkey;
  fake_verbs.refusal = ENOMEM;
  EXPECT_EQ(::ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, other, bytes, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(::ibv_rereg_mr(mr, 1 << 20, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(errno, EINVAL);
  fake_verbs.refusal = 0;
  EXPECT_EQ(mr->lkey, key);
  EXPECT_EQ(mr->addr, memory);
  EXPECT_EQ(::ibv_dereg_mr(mr), 0);
  ::munmap(other, bytes);
}

TEST_F(verbs_preload, reregistering_leaves_a_region_that_the_driver_keeps) {
  ibv_mr* const mr = registered(memory);
  EXPECT_EQ(::ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, every_access | IBV_ACCESS_MW_BIND), 0);
  const auto own_key = mr->lkey;
  const auto open = fake_verbs.open;
  fake_verbs.close_refusal = EBUSY;
  EXPECT_EQ(::ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, every_access), IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(errno, EBUSY);
  fake_verbs.close_refusal = 0;
  EXPECT_EQ(mr->lkey, own_key);
  EXPECT_EQ(fake_verbs.open, open);
  EXPECT_EQ(::ibv_dereg_mr(mr), 0);
  EXPECT_EQ(fake_verbs.open, open - 1) << "the region was not lost";
}

TEST_F(verbs_preload, the_drivers_own_regions_reregister_in_the_driver) {
  ibv_mr* const mr = registered(memory, every_access | IBV_ACCESS_MW_BIND);
  EXPECT_EQ(::ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, 0), 0);
  EXPECT_EQ(fake_verbs.rereg_calls, 1U);
  EXPECT_EQ(::ibv_dereg_mr(mr), 0);
}

TEST_F(verbs_preload, nothing_is_cached_where_children_do_not_inherit_registered_memory) {
  fake_verbs.fork_status = IBV_FORK_ENABLED;
  EXPECT_EQ(opens_of_two(every_access), 2U);
}

TEST_F(verbs_preload, a_forked_childs_registrations_pass_through) {
  ibv_mr* const mr = registered(memory);
  run_in_child([&] {
    EXPECT_EQ(opens_of_two(every_access), 2U);
    ibv_pd own{};
    own.context = &device;
    for (int i = 0; i < 2; ++i) EXPECT_EQ(::ibv_dereg_mr(ibv_reg_mr(&own, memory, bytes, every_access)), 0);
    EXPECT_EQ(fake_verbs.opens, 4U) << "a pd of the child has a cache of its own";
  });
  EXPECT_EQ(::ibv_dereg_mr(mr), 0);
  EXPECT_EQ(opens_of_two(every_access), 0U);
}

TEST_F(verbs_preload, the_users_limit_holds) {
  ::setenv("PINFOLD_MAX_COUNT", "1", 1);
  ::setenv("PINFOLD_WHEN_FULL", "fail", 1);
  char* const other = mapped();
  ibv_mr* const one = registered(memory);
  EXPECT_EQ(registered(other), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(::ibv_dereg_mr(one), 0);
  EXPECT_EQ(::ibv_dereg_mr(registered(other)), 0);
  EXPECT_EQ(fake_verbs.open, 1U);
  ::unsetenv("PINFOLD_MAX_COUNT");
  ::unsetenv("PINFOLD_WHEN_FULL");
  ::munmap(other, bytes);
}

TEST_F(verbs_preload, many_regions_at_once_are_told_apart) {
  std::vector<ibv_mr*> regions;
  for (int i = 0; i < 30'000; ++i)
    regions.push_back(registered(memory, i % 3 == 0 ? IBV_ACCESS_MW_BIND : every_access));
  EXPECT_EQ(std::set<ibv_mr*>(regions.begin(), regions.end()).size(), regions.size());
  EXPECT_EQ(fake_verbs.opens, 10'001U);
  for (auto* mr : regions) EXPECT_EQ(::ibv_dereg_mr(mr), 0);
  EXPECT_EQ(fake_verbs.open, 1U);
}

TEST_F(verbs_preload, threads_that_remap_their_memory_get_no_stale_region) {
  const auto end = std::chrono::steady_clock::now() + stress_time(20);
  std::atomic<std::uint64_t> stale{0};
  std::atomic<std::uint64_t> registrations{0};
  const auto work = [&] {
    char* const own = mapped();
    for (bool first = true; first || std::chrono::steady_clock::now() < end; first = false) {
      mapped(own);
      const auto before = __atomic_load_n(&fake_verbs.opens, __ATOMIC_SEQ_CST);
      for (int i = 0; i < 4; ++i) {
        ibv_mr* const mr = registered(own);
        if (mr == nullptr) std::abort();
        if (mr->lkey <= before) ++stale;
        ++registrations;
        ::ibv_dereg_mr(mr);
      }
    }
    ::munmap(own, bytes);
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work);
  for (auto& one : threads) one.join();
  EXPECT_EQ(stale, 0U);
  EXPECT_LE(fake_verbs.opens, registrations / 2) << "most are hits";
}

/// Returns how a program ends that the adapter says something of, on this stderr.
int status_of_program_with(int error_output, rlim_t file_bytes) {
  child_process program([=](line&) {
    const rlimit room{file_bytes, file_bytes};
    if (::setrlimit(RLIMIT_FSIZE, &room) != 0 || ::dup2(error_output, STDERR_FILENO) < 0) return 1;
    ::signal(SIGPIPE, SIG_DFL);
    ::setenv("PINFOLD_STATISTICS_AT_EXIT", "on", 1);
    return ::execl("/bin/true", "true", nullptr);
  });
  return program.reap();
}

TEST_F(verbs_preload, no_program_ends_because_its_stderr_takes_nothing) {
  std::array<int, 2> pipe{-1, -1};
  ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  ::close(pipe[0]);
  EXPECT_EQ(status_of_program_with(pipe[1], RLIM_INFINITY), 0) << "no reader";
  ::close(pipe[1]);
  const int full = ::open(::testing::TempDir().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (full < 0) GTEST_SKIP() << "no files without names here";
  EXPECT_EQ(status_of_program_with(full, 0), 0) << "a file at its limit";
  ::close(full);
}

}  // namespace
}  // namespace pinfold::testing
