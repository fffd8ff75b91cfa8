// SPDX-License-Identifier: BSD-3-Clause
// pinfold's monitors behind a cache that works as libfabric's does. A registration that is older than the memory behind
// it is stale.
#include "adapters/libfabric/fake_mr_cache.hpp"
#include "support/host/raw_calls.hpp"
#include "support/host/settings.hpp"

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <memory>
#include <pinfold/pinfold.h>
#include <rdma/providers/fi_prov.h>
#include <string>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <thread>
#include <vector>

using namespace pinfold::testing;

// The adapter calls this function, not libfabric's.
extern "C" int fi_open(uint32_t, const char* name, void*, size_t, uint64_t, fid** made, void*) {
  static fi_ops operations{
      sizeof operations, [](fid*) { return 0; }, fake::import_monitor, nullptr, nullptr, nullptr, nullptr};
  static fid cache{};
  if (std::strcmp(name, "mr_cache") != 0) return -FI_ENOSYS;
  cache.ops = &operations;
  *made = &cache;
  return 0;
}

namespace {

constexpr std::size_t bytes = 256 << 10;

char* mapped(void* at = nullptr) {
  void* const memory =
      ::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at != nullptr ? MAP_FIXED : 0), -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  std::memset(memory, 1, bytes);
  return static_cast<char*>(memory);
}

// Whether the kernel reports what no hook sees.
bool kernel_reports() {
  pinfold_cache* cache = nullptr;
  std::array<char, 256> text{};
  if (pinfold_create_mlock(nullptr, &cache) != PINFOLD_OK) return false;
  pinfold_monitors(cache, text.data(), text.size());
  pinfold_destroy(cache);
  return std::strstr(text.data(), "userfaultfd") != nullptr;
}

void import_once() {
  if (libfabric_now.monitor != nullptr || *PINFOLD_FI == '\0') return;
  ::setenv("FI_OFI_HOOK_PINFOLD_MODE", "monitor", 1);
  void* const library = ::dlopen(PINFOLD_FI, RTLD_NOW);
  if (library == nullptr) return;
  fid_fabric fabric{};
  fi_fabric_attr named{};
  named.fabric = &fabric;
  fid_fabric* returned = nullptr;
  reinterpret_cast<fi_provider* (*)()>(::dlsym(library, "fi_prov_ini"))()->fabric(&named, &returned, nullptr);
}

class libfabric_import_monitor : public ::testing::Test {
 protected:
  void SetUp() override {
    if (*PINFOLD_FI == '\0') GTEST_SKIP() << "the adapter is not in this build";
    import_once();
    ASSERT_NE(libfabric_now.monitor, nullptr);
    domain = std::make_unique<fake_mr_cache>();
    ASSERT_TRUE(domain->started());
    memory = mapped();
  }
  void TearDown() override {
    if (memory != nullptr) ::munmap(memory, bytes);
  }

  // Whether a registration made after `change` differs from the one before, at two places of the memory.
  template <class Change>
  void expect_noticed(const char* what, Change change) {
    const auto before = domain->search(memory, bytes);
    ASSERT_EQ(domain->search(memory, bytes), before) << what;
    ASSERT_EQ(domain->search(memory + 4096, 4096), before) << what;
    change();
    EXPECT_GT(domain->search(memory + 4096, 4096), before) << what;
    mapped(memory);
  }

  std::unique_ptr<fake_mr_cache> domain;
  char* memory = nullptr;
};

TEST_F(libfabric_import_monitor, every_way_of_losing_pages_ends_a_hit) {
  expect_noticed("mmap over it", [&] { mapped(memory); });
  expect_noticed("munmap", [&] {
    ::munmap(memory, bytes);
    mapped(memory);
  });
  expect_noticed("madvise(MADV_DONTNEED)", [&] { ::madvise(memory, bytes, MADV_DONTNEED); });
  expect_noticed("mremap", [&] {
    void* const elsewhere = ::mremap(memory, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, mapped());
    mapped(memory);
    ::munmap(elsewhere, bytes);
  });
  expect_noticed("a part", [&] {
    ::munmap(memory + 4096, 4096);
    mapped(memory);
  });
}

TEST_F(libfabric_import_monitor, a_raw_system_call_ends_a_hit) {
  if (!has_raw_calls || !kernel_reports()) GTEST_SKIP() << "no userfaultfd here";
  expect_noticed("a raw madvise", [&] { raw_call(SYS_madvise, memory, bytes, MADV_DONTNEED); });
}

TEST_F(libfabric_import_monitor, a_new_region_of_one_domain_does_not_make_another_domains_old_one_valid) {
  fake_mr_cache other;
  for (int round = 0; round < 100; ++round) {
    const auto old = domain->search(memory, bytes);
    mapped(memory);
    const auto fresh = other.search(memory, bytes);
    EXPECT_GT(fresh, old);
    EXPECT_GT(domain->search(memory + 4096, 4096), fresh);
  }
}

TEST_F(libfabric_import_monitor, an_eviction_in_one_domain_does_not_make_another_domains_old_region_valid) {
  fake_mr_cache other;
  for (int round = 0; round < 100; ++round) {
    const auto old = domain->search(memory, bytes);
    mapped(memory);
    other.search(memory, bytes);
    other.drop(0, UINTPTR_MAX);
    EXPECT_GT(domain->search(memory, bytes), old);
  }
}

TEST_F(libfabric_import_monitor, libfabric_is_told_without_asking) {
  domain->search(memory, bytes);
  ASSERT_EQ(domain->size(), 1U);
  ::munmap(memory, bytes);
  for (int tries = 0; tries < 6000 && domain->size() != 0; ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(domain->size(), 0U) << "it unpins the memory";
  mapped(memory);
}

TEST_F(libfabric_import_monitor, memory_that_cannot_be_watched_is_not_cached) {
  static std::array<char, bytes> of_the_program;
  const auto first = domain->search(of_the_program.data(), bytes);
  EXPECT_GT(domain->search(of_the_program.data(), bytes), first);
  EXPECT_EQ(domain->size(), 0U);
}

TEST_F(libfabric_import_monitor, two_domains_and_their_threads_get_no_stale_region) {
  fake_mr_cache other;
  const auto end = std::chrono::steady_clock::now() + stress_time(10);
  std::atomic<std::uint64_t> stale{0};
  std::atomic<std::uint64_t> searches{0};
  const auto work = [&] {
    char* const own = mapped();
    for (bool first = true; first || std::chrono::steady_clock::now() < end; first = false) {
      mapped(own);
      const auto before = libfabric_now.registrations.load();
      for (auto* one : {domain.get(), &other, domain.get(), &other, domain.get(), &other}) {
        if (one->search(own, bytes) <= before) ++stale;
        ++searches;
      }
    }
    ::munmap(own, bytes);
  };
  const auto before = libfabric_now.registrations.load();
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back(work);
  for (auto& one : threads) one.join();
  EXPECT_EQ(stale, 0U);
  EXPECT_LT(libfabric_now.registrations - before, searches) << "some are hits";
}

}  // namespace
