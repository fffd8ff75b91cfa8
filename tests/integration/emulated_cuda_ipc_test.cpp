// SPDX-License-Identifier: BSD-3-Clause
// The emulated driver between processes. The test's own process never calls cuInit: see
// support/fixtures/emulated_cuda.hpp.
#include "support/fixtures/emulated_cuda.hpp"
#include "support/processes/child_process.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

namespace pinfold::testing::emulated_cuda_ipc_test {
namespace {

using namespace pinfold::cuda;

struct order {
  enum class what : int { allocate, free, fill, handle } verb = what::allocate;
  device_pointer at = 0;
  std::size_t bytes = 0;
  unsigned char value = 0;
};

struct answer {
  status code = status::unknown;
  device_pointer at = 0;
  ipc_memory_handle handle{};
};

/// Allocates in an exporter process, and hands out handles.
int export_memory(line& parent) noexcept {
  emulated_driver own;
  own.start();
  while (const auto told = parent.receive<order>()) {
    answer said{.at = told->at};
    switch (told->verb) {
      case order::what::allocate: said.code = own.cu.mem_alloc(&said.at, told->bytes); break;
      case order::what::free: said.code = own.cu.mem_free(told->at); break;
      case order::what::fill: said.code = own.cu.memset_d8(told->at, told->value, told->bytes); break;
      case order::what::handle: said.code = own.cu.ipc_get_mem_handle(&said.handle, told->at); break;
    }
    parent.send(said);
  }
  return 0;
}

class exporter {
 public:
  device_pointer allocate(std::size_t bytes) { return ask({order::what::allocate, 0, bytes, 0}).at; }
  void free(device_pointer at) { ask({order::what::free, at, 0, 0}); }
  void fill(device_pointer at, std::size_t bytes, unsigned char value) { ask({order::what::fill, at, bytes, value}); }
  ipc_memory_handle handle(device_pointer at) { return ask({order::what::handle, at, 0, 0}).handle; }
  child_process& process() { return process_; }

 private:
  answer ask(order what) {
    process_.talk().send(what);
    const auto got = process_.talk().receive<answer>();
    EXPECT_TRUE(got && got->code == status::success);
    return got.value_or(answer{});
  }
  child_process process_{export_memory};
};

/// The importer, which is a child, too. Failed expectations in it make its exit status 1.
class importer : public emulated_driver {
 public:
  importer() { start(); }
  status open(const ipc_memory_handle& handle) {
    return cu.ipc_open_mem_handle(&mapped, handle, ipc_lazy_enable_peer_access);
  }
  int byte(std::size_t offset) {
    unsigned char value = 0;
    return cu.memcpy_d_to_h(&value, mapped + offset, 1) == status::success ? value : -1;
  }
  device_pointer mapped = 0;
};

/// Runs the body in an importer; it talks with exporters that were started before.
int in_importer(const std::function<void(importer&)>& body) {
  child_process child([&](line&) noexcept {
    importer own;
    body(own);
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  return child.reap();
}

TEST(emulated_cuda_ipc, importer_reads_and_writes_the_exporters_bytes) {
  exporter there;
  const device_pointer padding = there.allocate(4 * kib);
  const device_pointer at = there.allocate(32 * kib);
  EXPECT_EQ(at, padding + 4 * kib);
  there.fill(at, 32 * kib, 7);
  EXPECT_EQ(in_importer([&](importer& here) {
              ASSERT_EQ(here.open(there.handle(at + 100)), status::success) << "inside: the handle is of all of it";
              EXPECT_EQ(here.mapped % (2048 * kib), 4 * kib) << "where it lies in the exporter's block";
              EXPECT_EQ(here.byte(0), 7);
              EXPECT_EQ(here.byte(32 * kib - 1), 7);
              there.fill(at, 1, 8);
              EXPECT_EQ(here.byte(0), 8);
              EXPECT_EQ(here.counters().bytes_open, 32 * kib);
              ipc_memory_handle again{};
              EXPECT_EQ(here.cu.ipc_get_mem_handle(&again, here.mapped), status::invalid_value);
              EXPECT_EQ(here.cu.mem_free(here.mapped), status::invalid_value);
              EXPECT_EQ(here.cu.ipc_close_mem_handle(here.mapped), status::success);
              EXPECT_EQ(here.byte(0), -1);
            }),
            0);
}

TEST(emulated_cuda_ipc, second_open_is_counted_or_refused) {
  exporter there;
  const auto handle = there.handle(there.allocate(32 * kib));
  EXPECT_EQ(in_importer([&](importer& here) {
              ASSERT_EQ(here.open(handle), status::success);
              const device_pointer first = here.mapped;
              ASSERT_EQ(here.open(handle), status::success);
              EXPECT_EQ(here.mapped, first);
              EXPECT_EQ(here.counters().live_mappings, 1U);
              here.control.set_second_open(emulated_cuda::second_open::refused);
              EXPECT_EQ(here.open(handle), status::already_mapped);
              EXPECT_EQ(here.cu.ipc_close_mem_handle(first), status::success);
              EXPECT_EQ(here.byte(0), 0) << "one is still open";
              EXPECT_EQ(here.cu.ipc_close_mem_handle(first), status::success);
              EXPECT_EQ(here.cu.ipc_close_mem_handle(first), status::invalid_value);
              const auto count = here.counters();
              EXPECT_EQ(count.opens, 2U);
              EXPECT_EQ(count.mapped, 1U);
              EXPECT_EQ(count.closes, 2U);
              EXPECT_EQ(count.double_closes, 1U);
              EXPECT_EQ(count.live_mappings, 0U);
            }),
            0);
}

TEST(emulated_cuda_ipc, mapping_of_freed_memory_keeps_its_bytes_and_its_handle_then_opens_what_lies_there) {
  exporter there;
  const device_pointer old = there.allocate(32 * kib);
  there.fill(old, 32 * kib, 1);
  const auto stale = there.handle(old);
  EXPECT_EQ(in_importer([&](importer& here) {
              ASSERT_EQ(here.open(stale), status::success);
              const device_pointer mapped = here.mapped;
              there.free(old);
              ASSERT_EQ(there.allocate(64 * kib), old);
              there.fill(old, 64 * kib, 2);
              EXPECT_EQ(here.byte(0), 1);
              const auto fresh = there.handle(old);
              here.control.set_second_open(emulated_cuda::second_open::exclusive);
              EXPECT_EQ(here.open(fresh), status::already_mapped);
              here.control.set_second_open(emulated_cuda::second_open::counted);
              ASSERT_EQ(here.open(fresh), status::success);
              EXPECT_NE(here.mapped, mapped);
              EXPECT_EQ(here.byte(0), 2);
              ASSERT_EQ(here.open(stale), status::success) << "the same memory again";
              EXPECT_EQ(here.mapped, mapped);
              EXPECT_EQ(here.byte(0), 1);
              EXPECT_EQ(here.cu.ipc_close_mem_handle(mapped), status::success);
              EXPECT_EQ(here.cu.ipc_close_mem_handle(mapped), status::success);
              ASSERT_EQ(here.open(stale), status::success) << "the driver does not compare";
              EXPECT_EQ(here.byte(0), 2);
            }),
            0);
}

TEST(emulated_cuda_ipc, allocations_that_share_a_page_are_distinguished) {
  exporter there;
  const device_pointer first = there.allocate(600);
  const device_pointer second = there.allocate(600);
  ASSERT_EQ(second, first + 1024);
  there.fill(first, 600, 1);
  there.fill(second, 600, 2);
  const auto one = there.handle(first);
  const auto two = there.handle(second);
  there.free(first);
  EXPECT_EQ(in_importer([&](importer& here) {
              EXPECT_EQ(here.open(one), status::invalid_value) << "nothing lies there";
              ASSERT_EQ(here.open(two), status::success);
              EXPECT_EQ(here.byte(599), 2);
            }),
            0);
}

TEST(emulated_cuda_ipc, memory_of_a_dead_exporter_cannot_be_opened) {
  child_process importing_parent([](line&) noexcept {
    exporter there;
    const device_pointer at = there.allocate(4096 * kib);
    there.fill(at, kib, 3);
    const auto open_before = there.handle(at);
    const auto never_open = there.handle(there.allocate(kib));
    importer here;
    EXPECT_EQ(here.open(open_before), status::success);
    const device_pointer mapped = here.mapped;
    there.process().kill();
    EXPECT_EQ(here.open(never_open), status::invalid_handle) << "a zombie";
    here.mapped = mapped;
    EXPECT_EQ(here.byte(0), 3) << "as long as it is open";
    EXPECT_EQ(here.cu.ipc_close_mem_handle(mapped), status::success);
    EXPECT_EQ(here.open(open_before), status::invalid_handle);
    there.process().reap();
    EXPECT_EQ(here.open(open_before), status::invalid_handle);
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(importing_parent.reap(), 0);
}

TEST(emulated_cuda_ipc, mappings_are_limited_and_end_with_the_context) {
  exporter there;
  const auto one = there.handle(there.allocate(kib));
  const auto two = there.handle(there.allocate(8 * kib));
  EXPECT_EQ(in_importer([&](importer& here) {
              here.control.max_mappings(1);
              ASSERT_EQ(here.open(one), status::success);
              EXPECT_EQ(here.open(two), status::out_of_memory);
              ASSERT_EQ(here.cu.device_primary_ctx_reset(0), status::success);
              EXPECT_EQ(here.counters().live_mappings, 0U);
              EXPECT_EQ(here.cu.ipc_close_mem_handle(here.mapped), status::context_is_destroyed);
              here.start();
              EXPECT_EQ(here.open(two), status::success);
            }),
            0);
}

TEST(emulated_cuda_ipc, threads_open_and_close_concurrently) {
  exporter there;
  std::vector<ipc_memory_handle> handles;
  for (std::size_t i = 0; i < 8; ++i) {
    const device_pointer at = there.allocate((i + 1) * 3000);
    there.fill(at, kib, static_cast<unsigned char>(i));
    handles.push_back(there.handle(at));
  }
  EXPECT_EQ(in_importer([&](importer& here) {
              const auto work = [&](std::size_t seed) {
                context mine = nullptr;
                EXPECT_EQ(here.cu.device_primary_ctx_retain(&mine, 0), status::success);
                EXPECT_EQ(here.cu.ctx_set_current(mine), status::success);
                for (std::size_t i = seed; i < seed + 200; ++i) {
                  device_pointer at = 0;
                  unsigned char value = 0;
                  EXPECT_EQ(here.cu.ipc_open_mem_handle(&at, handles[i % 8], ipc_lazy_enable_peer_access),
                            status::success);
                  EXPECT_EQ(here.cu.memcpy_d_to_h(&value, at, 1), status::success);
                  EXPECT_EQ(value, i % 8);
                  EXPECT_EQ(here.cu.ipc_close_mem_handle(at), status::success);
                }
              };
              {
                std::vector<std::jthread> threads;
                for (std::size_t t = 0; t < 4; ++t) threads.emplace_back(work, t * 2);
              }
              const auto count = here.counters();
              EXPECT_EQ(count.opens, 800U);
              EXPECT_EQ(count.closes, 800U);
              EXPECT_EQ(count.live_mappings, 0U);
              EXPECT_EQ(count.bytes_open, 0U);
            }),
            0);
}

TEST(emulated_cuda_ipc, fork_child_has_no_driver) {
  EXPECT_EQ(in_importer([&](importer& here) {
              child_process forked([&](line&) {
                int count = 0;
                return here.cu.device_get_count(&count) == status::not_initialized &&
                               here.cu.init(0) == status::not_initialized
                           ? 0
                           : 1;
              });
              EXPECT_EQ(forked.reap(), 0);
            }),
            0);
}

}  // namespace
}  // namespace pinfold::testing::emulated_cuda_ipc_test
