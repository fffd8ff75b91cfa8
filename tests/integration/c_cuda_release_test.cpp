// SPDX-License-Identifier: BSD-3-Clause
// The release protocol over GPU memory in C (R66). Each test is a child, and its importer a child of that, which were
// forked before any of them had a driver.
#include <pinfold/release.h>

#include "support/fixtures/cuda_here.hpp"
#include "support/processes/in_child.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace pinfold::testing {
namespace {

constexpr std::size_t bytes = std::size_t{1} << 21U;
constexpr std::uint64_t soon = 5000;

struct named_memory {
  std::array<unsigned char, PINFOLD_CUDA_HANDLE_BYTES> handle{};
  std::uint64_t address = 0;
};

/// Keeps the first memory that it is told of leased, until it is told of another.
int import_memory(line& parent) {
  static_cast<void>(gpu());
  pinfold_cache* cache = nullptr;
  if (pinfold_create_cuda_ipc_releasing(0, nullptr, &cache) != PINFOLD_OK) return 1;
  pinfold_lease lease{};
  while (const auto what = parent.receive<named_memory>()) {
    bool right = lease.pin == 0 || pinfold_release(lease) == PINFOLD_OK;
    lease = {};
    if (what->address != 0) {
      lease = pinfold_import(cache, 1, what->handle.data(), what->handle.size(), what->address, bytes);
      right = right && lease.pin != 0 && gpu().holds(reinterpret_cast<std::uint64_t>(lease.data), bytes, 7);
    }
    if (!parent.send(right)) return 3;
  }
  return pinfold_destroy(cache) == PINFOLD_OK ? 0 : 2;
}

struct freeing {
  std::uint64_t address = 0;
  std::atomic<int> calls{0};
  int native = 0;  ///< what the driver shall say; 0: free
};
int free_memory(void* self, pinfold_error* failure) {
  auto& what = *static_cast<freeing*>(self);
  ++what.calls;
  if (what.native == 0) gpu().demand([&] { return gpu().calls().mem_free(what.address); });
  if (what.native == 0) return PINFOLD_OK;
  failure->native_kind = PINFOLD_NATIVE_CUDA;
  failure->native = what.native;
  return PINFOLD_E_DRIVER_ERROR;
}

/// Shared memory, its exporter, and an importer.
struct retiring {
  retiring() {
    gpu().demand([&] { return gpu().calls().mem_alloc(&shared.address, bytes); });
    gpu().write(shared.address, bytes, 7);
    free_it.address = shared.address;
    pinfold_exporter_options how{};
    how.size = sizeof how;
    how.release = 1;
    EXPECT_EQ(pinfold_cuda_exporter_create_with(&how, &exporter), PINFOLD_OK);
    EXPECT_EQ(pinfold_cuda_share(exporter, shared.address, bytes, shared.handle.data(), shared.handle.size()),
              PINFOLD_OK);
    report.size = sizeof report;
  }
  retiring(const retiring&) = delete;
  retiring& operator=(const retiring&) = delete;
  ~retiring() { pinfold_cuda_exporter_destroy(exporter); }

  pinfold_retirement* begin(std::uint64_t timeout_ms) {
    pinfold_retirement* ticket = nullptr;
    EXPECT_EQ(pinfold_cuda_begin_retire(exporter, shared.address, timeout_ms, free_memory, &free_it, &ticket),
              PINFOLD_OK);
    return ticket;
  }

  child_process importer{import_memory};  // before the driver
  pinfold_cuda_exporter* exporter = nullptr;
  named_memory shared;
  freeing free_it;
  pinfold_retire_report report{};
};

}  // namespace

TEST(c_cuda_release, R66_memory_is_freed_once_its_importer_lets_go) {
  run_in_child([] {
    retiring it;
    EXPECT_TRUE(it.importer.ask<bool>(it.shared));
    pinfold_retirement* const ticket = it.begin(50);
    EXPECT_EQ(pinfold_retirement_wait(ticket, 200, &it.report), PINFOLD_OK);
    EXPECT_EQ(it.report.state, PINFOLD_RETIRE_LIMBO);
    EXPECT_EQ(it.report.holders, 1U);
    EXPECT_EQ(it.free_it.calls, 0);
    pinfold_retirement* again = ticket;
    EXPECT_EQ(pinfold_cuda_begin_retire(it.exporter, it.shared.address, 1, free_memory, &it.free_it, &again),
              PINFOLD_E_INVALID_ARGUMENT);
    EXPECT_EQ(again, nullptr);
    EXPECT_TRUE(it.importer.ask<bool>(named_memory{}));
    EXPECT_EQ(pinfold_retirement_wait(ticket, soon, &it.report), PINFOLD_OK);
    EXPECT_EQ(it.report.state, PINFOLD_RETIRE_FREED);
    EXPECT_EQ(it.free_it.calls, 1);
    pinfold_release_statistics counts{};
    counts.size = sizeof counts;
    EXPECT_EQ(pinfold_cuda_retirements(it.exporter, &counts), PINFOLD_OK);
    EXPECT_EQ(counts.freed, 1U);
    pinfold_retirement_end(ticket);
    EXPECT_EQ(it.importer.finish(), 0);
  });
}

TEST(c_cuda_release, R66_the_error_of_the_free_reaches_the_caller) {
  run_in_child([] {
    retiring it;
    it.free_it.native = 999;
    pinfold_retirement* const ticket = it.begin(soon);
    EXPECT_EQ(pinfold_retirement_wait(ticket, soon, &it.report), PINFOLD_OK);
    EXPECT_EQ(it.report.failure.code, PINFOLD_E_DRIVER_ERROR);
    EXPECT_EQ(it.report.failure.native_kind, PINFOLD_NATIVE_CUDA);
    EXPECT_EQ(it.report.failure.native, 999);
    EXPECT_EQ(it.free_it.calls, 1);
    pinfold_retirement_end(ticket);
  });
}

TEST(c_cuda_release, R66_the_end_of_the_exporter_frees) {
  run_in_child([] {
    retiring it;
    EXPECT_TRUE(it.importer.ask<bool>(it.shared));
    pinfold_retirement* const ticket = it.begin(soon);
    pinfold_cuda_exporter_destroy(std::exchange(it.exporter, nullptr));
    EXPECT_EQ(it.free_it.calls, 1);
    EXPECT_EQ(pinfold_retirement_wait(ticket, soon, &it.report), PINFOLD_OK);
    EXPECT_EQ(it.report.state, PINFOLD_RETIRE_ABANDONED);
    pinfold_retirement_end(ticket);
  });
}

TEST(c_cuda_release, what_is_not_shared_is_not_retired) {
  run_in_child([] {
    retiring it;
    pinfold_retirement* ticket = nullptr;
    EXPECT_EQ(pinfold_cuda_begin_retire(it.exporter, it.shared.address, 1, nullptr, nullptr, &ticket),
              PINFOLD_E_INVALID_ARGUMENT);
    EXPECT_EQ(pinfold_cuda_begin_retire(it.exporter, 1, 1, free_memory, &it.free_it, &ticket),
              PINFOLD_E_INVALID_ARGUMENT);
    EXPECT_EQ(pinfold_cuda_begin_retire(it.exporter, it.shared.address, 1, free_memory, &it.free_it, nullptr),
              PINFOLD_E_INVALID_ARGUMENT);
    pinfold_cuda_exporter* plain = nullptr;
    EXPECT_EQ(pinfold_cuda_exporter_create_with(nullptr, &plain), PINFOLD_OK);
    EXPECT_EQ(pinfold_cuda_begin_retire(plain, it.shared.address, 1, free_memory, &it.free_it, &ticket),
              PINFOLD_E_UNSUPPORTED);
    pinfold_cuda_exporter_destroy(plain);
    EXPECT_EQ(it.free_it.calls, 0);
  });
}

}  // namespace pinfold::testing
