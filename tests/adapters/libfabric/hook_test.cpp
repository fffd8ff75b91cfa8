// SPDX-License-Identifier: BSD-3-Clause
// The hook provider over a provider that counts. A region's key tells when it was registered: one that is older than
// the memory behind it is stale.
#include "adapters/libfabric/fake_provider.hpp"
#include "support/host/settings.hpp"
#include "support/processes/in_child.hpp"

#include <array>
#include <cstdlib>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <vector>

namespace pinfold::testing {
namespace {

constexpr std::size_t bytes = 64 << 10;
constexpr std::uint64_t every_access = FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

char* mapped(void* at = nullptr) {
  void* const memory =
      ::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at != nullptr ? MAP_FIXED : 0), -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return static_cast<char*>(memory);
}

// Returns the hook, or null where it is not built.
fi_provider* hook() {
  static fi_provider* const loaded = [] {
    void* const library = *PINFOLD_FI != '\0' ? ::dlopen(PINFOLD_FI, RTLD_NOW) : nullptr;
    if (library == nullptr) return static_cast<fi_provider*>(nullptr);
    return reinterpret_cast<fi_provider* (*)()>(::dlsym(library, "fi_prov_ini"))();
  }();
  return loaded;
}

class libfabric_hook : public ::testing::Test {
 protected:
  libfabric_hook() {
    info.domain_attr = &attributes;
    attributes.mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
    attributes.threading = FI_THREAD_SAFE;
    info.caps = FI_MSG | FI_RMA;
  }

  void SetUp() override {
    if (hook() == nullptr) GTEST_SKIP() << "the adapter is not in this build";
    fabric.next = &provider;
    fi_fabric_attr named{};
    named.fabric = &fabric.base;
    fid_fabric* returned = nullptr;
    ASSERT_EQ(hook()->fabric(&named, &returned, nullptr), 0);
    ASSERT_EQ(returned, &fabric.base);
    memory = mapped();
  }

  void TearDown() override {
    if (hook() == nullptr) return;
    if (domain != nullptr) close_all();
    ::munmap(memory, bytes);
  }

  void open_domain() { ASSERT_EQ(::fi_domain(&fabric.base, &info, &domain, nullptr), 0); }

  void close_all() {
    EXPECT_EQ(::fi_close(&domain->fid), 0);
    EXPECT_TRUE(provider.closed);
    EXPECT_EQ(provider.open, 0U);
    EXPECT_EQ(::fi_close(&fabric.base.fid), 0);
    EXPECT_TRUE(fabric.closed);
    domain = nullptr;
  }

  fid_mr* registered(void* at, std::uint64_t access = every_access, void* context = nullptr) {
    fid_mr* region = nullptr;
    EXPECT_EQ(::fi_mr_reg(domain, at, bytes, access, 0, 0, 0, &region, context), 0);
    return region;
  }

  // Registers and closes twice, and returns how many regions the provider made for that.
  std::uint64_t opens_of_two(const fi_mr_attr& what, std::uint64_t flags = 0) {
    const auto before = provider.opens.load();
    for (int i = 0; i < 2; ++i) {
      fid_mr* region = nullptr;
      EXPECT_EQ(::fi_mr_regattr(domain, &what, flags, &region), 0);
      EXPECT_EQ(::fi_close(&region->fid), 0);
    }
    return provider.opens - before;
  }

  fi_mr_attr whole() {
    where = {memory, bytes};
    fi_mr_attr what{};
    what.mr_iov = &where;
    what.iov_count = 1;
    what.access = every_access;
    return what;
  }

  fake_fabric fabric;
  fake_domain provider;
  fi_domain_attr attributes{};
  fi_info info{};
  fid_domain* domain = nullptr;
  char* memory = nullptr;
  iovec where{};
};

TEST_F(libfabric_hook, callers_of_the_same_memory_share_its_key_and_descriptor) {
  open_domain();
  int mine = 0;
  int yours = 0;
  fid_mr* const one = registered(memory, every_access, &mine);
  fid_mr* const other = registered(memory, every_access, &yours);
  EXPECT_NE(one, other);
  EXPECT_EQ(one->fid.context, &mine);
  EXPECT_EQ(other->fid.context, &yours);
  EXPECT_EQ(one->fid.fclass, static_cast<std::size_t>(FI_CLASS_MR));
  EXPECT_EQ(::fi_mr_key(one), ::fi_mr_key(other));
  EXPECT_EQ(::fi_mr_desc(one), ::fi_mr_desc(other));
  EXPECT_EQ(::fi_close(&one->fid), 0);
  EXPECT_EQ(provider.open, 1U);
  EXPECT_EQ(::fi_close(&other->fid), 0);
  EXPECT_EQ(provider.opens, 1U);
  EXPECT_EQ(provider.open, 1U) << "kept for the next caller";
}

TEST_F(libfabric_hook, all_three_calls_use_the_cache) {
  open_domain();
  const auto what = whole();
  std::array<fid_mr*, 3> regions{};
  ASSERT_EQ(::fi_mr_reg(domain, memory, bytes, every_access, 0, 0, 0, &regions[0], nullptr), 0);
  ASSERT_EQ(::fi_mr_regv(domain, &where, 1, every_access, 0, 0, 0, &regions[1], nullptr), 0);
  ASSERT_EQ(::fi_mr_regattr(domain, &what, 0, &regions[2]), 0);
  EXPECT_EQ(provider.opens, 1U);
  for (auto* region : regions) EXPECT_EQ(::fi_close(&region->fid), 0);
}

TEST_F(libfabric_hook, memory_that_was_mapped_anew_is_registered_anew) {
  open_domain();
  for (std::uint64_t round = 1; round <= 20; ++round) {
    for (int i = 0; i < 3; ++i) {
      fid_mr* const region = registered(memory);
      EXPECT_EQ(::fi_mr_key(region), round);
      EXPECT_EQ(::fi_close(&region->fid), 0);
    }
    mapped(memory);
  }
}

TEST_F(libfabric_hook, more_access_is_registered_anew) {
  open_domain();
  EXPECT_EQ(::fi_close(&registered(memory, FI_SEND)->fid), 0);
  EXPECT_EQ(provider.last_access & (FI_REMOTE_READ | FI_REMOTE_WRITE | FI_RECV | FI_READ), 0U);
  EXPECT_EQ(::fi_close(&registered(memory, FI_REMOTE_WRITE)->fid), 0);
  EXPECT_EQ(provider.opens, 2U);
  EXPECT_NE(provider.last_access & FI_REMOTE_WRITE, 0U);
}

TEST_F(libfabric_hook, what_callers_cannot_share_passes_through) {
  info.caps |= FI_HMEM;
  open_domain();
  EXPECT_EQ(opens_of_two(whole()), 1U);
  EXPECT_EQ(opens_of_two(whole(), FI_RMA_EVENT), 2U);
  auto what = whole();
  what.offset = 1;
  EXPECT_EQ(opens_of_two(what), 2U);
  what = whole();
  what.access = 0;
  EXPECT_EQ(opens_of_two(what), 2U);
  what = whole();
  what.access |= FI_COLLECTIVE;
  EXPECT_EQ(opens_of_two(what), 2U);
  what = whole();
  what.iface = FI_HMEM_CUDA;
  EXPECT_EQ(opens_of_two(what), 2U);
  what = whole();
  std::uint8_t key = 0;
  what.auth_key = &key;
  what.auth_key_size = 1;
  EXPECT_EQ(opens_of_two(what), 2U);
  const std::array pieces{iovec{memory, 4096}, iovec{memory + 8192, 4096}};
  what = whole();
  what.mr_iov = pieces.data();
  what.iov_count = pieces.size();
  EXPECT_EQ(opens_of_two(what), 2U);
  EXPECT_EQ(opens_of_two(whole()), 0U) << "still cached";
}

TEST_F(libfabric_hook, domains_whose_regions_cannot_be_shared_pass_through) {
  const int can = attributes.mr_mode;
  struct {
    int mode;
    std::uint32_t version;
  } const cannot[] = {
      {can & ~FI_MR_PROV_KEY, fabric.base.api_version}, {can & ~FI_MR_VIRT_ADDR, fabric.base.api_version},
      {can | FI_MR_ENDPOINT, fabric.base.api_version},  {can | FI_MR_RMA_EVENT, fabric.base.api_version},
      {can | FI_MR_RAW, fabric.base.api_version},       {can | FI_MR_MMU_NOTIFY, fabric.base.api_version},
      {FI_MR_SCALABLE, fabric.base.api_version},        {can, FI_VERSION(1, 4)}};
  for (const auto& one : cannot) {
    attributes.mr_mode = one.mode;
    fabric.base.api_version = one.version;
    open_domain();
    EXPECT_EQ(opens_of_two(whole()), 2U) << one.mode;
    EXPECT_EQ(::fi_close(&domain->fid), 0);
  }
  attributes.mr_mode = FI_MR_BASIC;
  fabric.base.api_version = FI_VERSION(1, 17);
  open_domain();
  EXPECT_EQ(opens_of_two(whole()), 1U);
}

TEST_F(libfabric_hook, a_domain_with_asynchronous_registrations_passes_through) {
  open_domain();
  EXPECT_EQ(opens_of_two(whole()), 1U);
  fid queue{};
  ASSERT_EQ(::fi_domain_bind(domain, &queue, FI_REG_MR), 0);
  EXPECT_EQ(opens_of_two(whole()), 2U);
}

TEST_F(libfabric_hook, a_domain_passes_through_once_it_has_counters_to_bind) {
  info.caps |= FI_RMA_EVENT;
  open_domain();
  EXPECT_EQ(opens_of_two(whole()), 1U);
  fid_cntr* counter = nullptr;
  fi_cntr_attr attribute{};
  ASSERT_EQ(::fi_cntr_open(domain, &attribute, &counter, nullptr), 0);
  EXPECT_EQ(opens_of_two(whole()), 2U);
}

TEST_F(libfabric_hook, counters_without_the_capability_change_nothing) {
  open_domain();
  fid_cntr* counter = nullptr;
  fi_cntr_attr attribute{};
  ASSERT_EQ(::fi_cntr_open(domain, &attribute, &counter, nullptr), 0);
  EXPECT_EQ(opens_of_two(whole()), 1U);
}

TEST_F(libfabric_hook, a_shared_region_cannot_be_bound) {
  open_domain();
  fid_mr* const region = registered(memory);
  fid counter{};
  EXPECT_EQ(::fi_mr_bind(region, &counter, FI_REMOTE_WRITE), -FI_ENOSYS);
  EXPECT_EQ(::fi_mr_enable(region), 0);
  EXPECT_EQ(::fi_close(&region->fid), 0);
}

TEST_F(libfabric_hook, the_providers_error_reaches_the_program) {
  open_domain();
  provider.refusal = -FI_EACCES;
  fid_mr* region = nullptr;
  EXPECT_EQ(::fi_mr_reg(domain, memory, bytes, every_access, 0, 0, 0, &region, nullptr), -FI_EACCES);
  provider.refusal = 0;
  EXPECT_EQ(opens_of_two(whole()), 1U);
}

TEST_F(libfabric_hook, access_that_only_the_cache_asks_for_does_not_fail_a_registration) {
  open_domain();
  provider.no_access = FI_WRITE;  // as verbs refuses it for memory that cannot be written
  fid_mr* const region = registered(memory, FI_SEND);
  ASSERT_NE(region, nullptr);
  EXPECT_EQ(provider.last_access, FI_SEND);
  EXPECT_EQ(::fi_close(&region->fid), 0);
}

TEST_F(libfabric_hook, a_domain_with_open_regions_is_busy) {
  open_domain();
  fid_mr* const region = registered(memory);
  EXPECT_EQ(::fi_close(&domain->fid), -FI_EBUSY);
  EXPECT_FALSE(provider.closed);
  EXPECT_EQ(opens_of_two(whole()), 0U) << "the domain works on";
  EXPECT_EQ(::fi_close(&region->fid), 0);
}

TEST_F(libfabric_hook, a_close_that_fails_is_reported_and_not_repeated) {
  open_domain();
  EXPECT_EQ(opens_of_two(whole()), 1U);
  provider.close_failure = -FI_EIO;
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(::fi_close(&domain->fid), 0);
  const auto said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("fi_close: "), std::string::npos) << said;
  EXPECT_EQ(provider.open, 0U);
  EXPECT_EQ(::fi_close(&fabric.base.fid), 0);
  domain = nullptr;
}

TEST_F(libfabric_hook, a_domain_that_the_provider_does_not_close_works_on) {
  open_domain();
  EXPECT_EQ(opens_of_two(whole()), 1U);
  provider.open += 1;  // what else makes a domain busy
  EXPECT_EQ(::fi_close(&domain->fid), -FI_EBUSY);
  provider.open -= 1;
  EXPECT_EQ(opens_of_two(whole()), 1U);
}

TEST_F(libfabric_hook, a_fabric_that_was_opened_twice_is_closed_twice) {
  fi_fabric_attr named{};
  named.fabric = &fabric.base;
  fid_fabric* returned = nullptr;
  ASSERT_EQ(hook()->fabric(&named, &returned, nullptr), 0);
  EXPECT_EQ(::fi_close(&fabric.base.fid), 0);
  open_domain();
  EXPECT_EQ(opens_of_two(whole()), 1U);
}

TEST_F(libfabric_hook, the_users_limit_holds) {
  ::setenv("PINFOLD_MAX_COUNT", "1", 1);
  ::setenv("PINFOLD_WHEN_FULL", "fail", 1);
  open_domain();
  ::unsetenv("PINFOLD_MAX_COUNT");
  ::unsetenv("PINFOLD_WHEN_FULL");
  char* const other = mapped();
  fid_mr* const one = registered(memory);
  fid_mr* refused = nullptr;
  EXPECT_EQ(::fi_mr_reg(domain, other, bytes, every_access, 0, 0, 0, &refused, nullptr), -FI_ENOMEM);
  EXPECT_EQ(provider.open, 1U);
  EXPECT_EQ(::fi_close(&one->fid), 0);
  EXPECT_EQ(::fi_close(&registered(other)->fid), 0);
  EXPECT_EQ(provider.open, 1U);
  ::munmap(other, bytes);
}

TEST_F(libfabric_hook, without_a_users_limit_none_is_refused) {
  ::setenv("PINFOLD_MAX_COUNT", "1", 1);
  open_domain();
  ::unsetenv("PINFOLD_MAX_COUNT");
  char* const other = mapped();
  fid_mr* const one = registered(memory);
  fid_mr* const two = registered(other);
  ASSERT_NE(two, nullptr);
  EXPECT_EQ(::fi_close(&one->fid), 0);
  EXPECT_EQ(::fi_close(&two->fid), 0);
  EXPECT_EQ(provider.open, 1U);
  ::munmap(other, bytes);
}

TEST_F(libfabric_hook, a_forked_childs_registrations_pass_through) {
  open_domain();
  EXPECT_EQ(opens_of_two(whole()), 1U);
  run_in_child([&] { EXPECT_EQ(opens_of_two(whole()), 2U); });
  EXPECT_EQ(opens_of_two(whole()), 0U);
}

TEST_F(libfabric_hook, threads_that_remap_their_memory_get_no_stale_region) {
  open_domain();
  const auto end = std::chrono::steady_clock::now() + stress_time(20);
  std::atomic<std::uint64_t> stale{0};
  std::atomic<std::uint64_t> registrations{0};
  const auto work = [&] {
    char* const own = mapped();
    for (bool first = true; first || std::chrono::steady_clock::now() < end; first = false) {
      mapped(own);
      const auto before = provider.opens.load();
      for (int i = 0; i < 4; ++i) {
        fid_mr* region = nullptr;
        if (::fi_mr_reg(domain, own, bytes, every_access, 0, 0, 0, &region, nullptr) != 0) std::abort();
        if (::fi_mr_key(region) <= before) ++stale;
        ++registrations;
        ::fi_close(&region->fid);
      }
    }
    ::munmap(own, bytes);
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work);
  for (auto& one : threads) one.join();
  EXPECT_EQ(stale, 0U);
  EXPECT_LE(provider.opens, registrations / 2) << "most are hits";
}

}  // namespace
}  // namespace pinfold::testing
