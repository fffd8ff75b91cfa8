// SPDX-License-Identifier: BSD-3-Clause
// The release protocol over GPU memory in C (R66). Each test is a child, and its importer a child of that, which were
// forked before any of them had a driver.
#include <pinfold/release_carried.h>

#include "support/fixtures/cuda_here.hpp"
#include "support/processes/in_child.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace pinfold::testing::c_cuda_release_test {
namespace {

constexpr std::size_t bytes = std::size_t{1} << 21U;
constexpr std::uint64_t soon = 60'000;  // ms: for what another process does, on a busy machine

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

using message = std::array<unsigned char, PINFOLD_RELEASE_MESSAGE_BYTES>;

/// What the test carries to an importer and back, where the library carries nothing.
struct carried {
  named_memory lease{};  ///< without an address: release the lease
  message request{};
  bool asks = false;
};
struct carried_answer {
  bool right = false;
  std::size_t count = 0;
  std::array<message, 2> messages{};
};

int carry(void* self, std::uint64_t /*exporter*/, const void* answer, std::size_t length, pinfold_error* /*failure*/) {
  auto& to = *static_cast<carried_answer*>(self);
  if (to.count == to.messages.size() || length != sizeof(message)) return PINFOLD_E_OUT_OF_RESOURCES;
  std::memcpy(to.messages[to.count++].data(), answer, length);
  return PINFOLD_OK;
}

int import_carried(line& parent) {
  static_cast<void>(gpu());
  carried_answer answer;
  pinfold_release_listener* listener = nullptr;
  pinfold_cache* cache = nullptr;
  if (pinfold_release_listener_create(carry, &answer, &listener) != PINFOLD_OK) return 1;
  if (pinfold_create_cuda_ipc_carried(listener, 0, nullptr, &cache) != PINFOLD_OK) return 2;
  pinfold_lease lease{};
  while (const auto what = parent.receive<carried>()) {
    answer = {};
    if (what->asks) {
      answer.right = pinfold_release_listener_receive(listener, what->request.data(), sizeof(message)) == PINFOLD_OK;
    } else if (what->lease.address == 0) {
      answer.right = pinfold_release(std::exchange(lease, {})) == PINFOLD_OK &&
                     pinfold_release_listener_progress(listener) == PINFOLD_OK;
    } else {
      const auto& of = what->lease;
      lease = pinfold_import(cache, 1, of.handle.data(), of.handle.size(), of.address, bytes);
      answer.right = lease.pin != 0 && gpu().holds(reinterpret_cast<std::uint64_t>(lease.data), bytes, 7);
    }
    if (!parent.send(answer)) return 3;
  }
  if (pinfold_destroy(cache) != PINFOLD_OK) return 4;
  return pinfold_release_listener_destroy(listener) == PINFOLD_OK ? 0 : 5;
}

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

TEST(c_cuda_release, R66_memory_is_let_go_over_a_channel_of_the_program) {
  run_in_child([] {
    child_process importer{import_carried};  // before the driver
    named_memory shared;
    gpu().demand([&] { return gpu().calls().mem_alloc(&shared.address, bytes); });
    gpu().write(shared.address, bytes, 7);
    pinfold_cuda_exporter* exporter = nullptr;
    ASSERT_EQ(pinfold_cuda_exporter_create(&exporter), PINFOLD_OK);
    ASSERT_EQ(pinfold_cuda_share(exporter, shared.address, bytes, shared.handle.data(), shared.handle.size()),
              PINFOLD_OK);
    pinfold_release_id id{};
    pinfold_release_registry* registry = nullptr;
    ASSERT_EQ(pinfold_release_id_of(shared.handle.data(), shared.handle.size(), &id), PINFOLD_OK);
    ASSERT_EQ(pinfold_release_registry_create(id.exporter, &registry), PINFOLD_OK);
    ASSERT_EQ(pinfold_release_registry_add(registry, id.serial), PINFOLD_OK);
    ASSERT_EQ(pinfold_release_registry_lend(registry, id.serial, 1, importer.pid()), PINFOLD_OK);
    const auto tell = [&](const carried& what) {
      const auto answer = importer.ask<carried_answer>(what);
      EXPECT_TRUE(answer.right);
      for (std::size_t i = 0; i < answer.count; ++i)
        EXPECT_EQ(pinfold_release_registry_receive(registry, 1, answer.messages[i].data(), sizeof(message)),
                  PINFOLD_OK);
      return answer.count;
    };
    EXPECT_EQ(tell({.lease = shared}), 0U);
    ASSERT_EQ(pinfold_release_registry_begin_retire(registry, id.serial, soon), PINFOLD_OK);
    carried asks{.asks = true};
    std::size_t length = 0;
    ASSERT_EQ(pinfold_release_registry_next_request(registry, 1, asks.request.data(), sizeof(message), &length),
              PINFOLD_OK);
    EXPECT_EQ(tell(asks), 1U);
    pinfold_retire_report report{};
    report.size = sizeof report;
    EXPECT_EQ(pinfold_release_registry_wait(registry, id.serial, 0, &report), PINFOLD_OK);
    EXPECT_EQ(report.holders, 1U);
    EXPECT_EQ(tell({}), 1U);
    EXPECT_EQ(pinfold_release_registry_wait(registry, id.serial, 0, &report), PINFOLD_OK);
    EXPECT_EQ(report.state, PINFOLD_RETIRE_FREED);
    EXPECT_EQ(importer.finish(), 0);
    gpu().demand([&] { return gpu().calls().mem_free(shared.address); });
    pinfold_release_registry_destroy(registry);
    pinfold_cuda_exporter_destroy(exporter);
  });
}

}  // namespace pinfold::testing::c_cuda_release_test
