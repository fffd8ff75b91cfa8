// SPDX-License-Identifier: BSD-3-Clause
// The emulated driver's environment, which it reads when it is loaded: in this file only in children.
#include "support/fixtures/emulated_cuda.hpp"
#include "support/processes/child_process.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <functional>

namespace emulated_cuda_settings_test {
namespace {

using namespace pinfold::cuda;
using pinfold::testing::child_process;
using pinfold::testing::emulated_driver;
using pinfold::testing::line;

using setting = std::pair<const char*, const char*>;

int with(std::initializer_list<setting> settings, const std::function<void(emulated_driver&)>& body) {
  child_process child([&](line&) noexcept {
    for (const auto& [name, value] : settings) ::setenv(name, value, 1);
    emulated_driver own;
    body(own);
    return ::testing::Test::HasFailure() ? 1 : 0;
  });
  return child.reap();
}

TEST(emulated_cuda_settings, init_without_devices_returns_no_device) {
  EXPECT_EQ(with({{"EMULATED_CUDA_DEVICES", "0"}},
                 [](emulated_driver& own) {
                   EXPECT_EQ(own.cu.init(0), status::no_device);
                   int count = 0;
                   EXPECT_EQ(own.cu.device_get_count(&count), status::not_initialized);
                 }),
            0);
}

TEST(emulated_cuda_settings, each_device_has_memory_and_a_context_of_its_own) {
  EXPECT_EQ(with({{"EMULATED_CUDA_DEVICES", "3"}, {"EMULATED_CUDA_MEMORY_MIB", "4"}},
                 [](emulated_driver& own) {
                   device_pointer at = 0;
                   own.start(0);
                   EXPECT_EQ(own.cu.mem_alloc(&at, 4 << 20), status::success);
                   EXPECT_EQ(own.cu.mem_alloc(&at, 1), status::out_of_memory);
                   own.start(2);
                   EXPECT_EQ(own.cu.mem_alloc(&at, 4 << 20), status::success);
                   int ordinal = 0;
                   EXPECT_EQ(own.cu.pointer_get_attribute(&ordinal, pointer_attribute::device_ordinal, at),
                             status::success);
                   EXPECT_EQ(ordinal, 2);
                   context none = nullptr;
                   EXPECT_EQ(own.cu.device_primary_ctx_retain(&none, 3), status::invalid_device);
                 }),
            0);
}

TEST(emulated_cuda_settings, failures_and_delays_are_set_by_environment) {
  EXPECT_EQ(with({{"EMULATED_CUDA_FAIL", "cuMemAlloc=2:2,cuMemFree=1:999:forever"},
                  {"EMULATED_CUDA_DELAY", "cuCtxGetCurrent=10,cuMemGetInfo=20000"}},
                 [](emulated_driver& own) {
                   own.start();
                   device_pointer at = 0;
                   EXPECT_EQ(own.cu.mem_alloc(&at, 1), status::success);
                   EXPECT_EQ(own.cu.mem_alloc(&at, 1), status::out_of_memory);
                   EXPECT_EQ(own.cu.mem_alloc(&at, 1), status::success);
                   EXPECT_EQ(own.cu.mem_free(at), status::unknown);
                   EXPECT_EQ(own.cu.mem_free(at), status::unknown);
                   const auto before = std::chrono::steady_clock::now();
                   std::size_t free = 0;
                   EXPECT_EQ(own.cu.mem_get_info(&free, &free), status::success);
                   EXPECT_GE(std::chrono::steady_clock::now() - before, std::chrono::milliseconds(20));
                   own.control.reset();
                   EXPECT_EQ(own.cu.mem_free(at), status::success);
                 }),
            0);
}

/// Opens the exporter's handle in a context of the device, with these settings in the environment.
status open_on(device own_device, std::initializer_list<setting> settings, bool freed) {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  child_process exporter([&](line& parent) noexcept {
    ::setenv("EMULATED_CUDA_DEVICES", "2", 1);
    emulated_driver own;
    own.start();
    device_pointer at = 0;
    ipc_memory_handle handle{};
    own.cu.mem_alloc(&at, 1);
    own.cu.ipc_get_mem_handle(&handle, at);
    if (freed) own.cu.mem_free(at);
    parent.send(handle);
    parent.receive<int>();
    return 0;
  });
  const auto handle = exporter.talk().receive<ipc_memory_handle>();
  with(settings, [&](emulated_driver& own) {
    own.start(own_device);
    device_pointer at = 0;
    const status code = own.cu.ipc_open_mem_handle(&at, *handle, ipc_lazy_enable_peer_access);
    EXPECT_EQ(::write(ends[1], &code, sizeof code), ssize_t{sizeof code});
  });
  status code = status::unknown;
  EXPECT_EQ(::read(ends[0], &code, sizeof code), ssize_t{sizeof code});
  ::close(ends[0]);
  ::close(ends[1]);
  return code;
}

TEST(emulated_cuda_settings, memory_of_another_device_requires_peer_access) {
  EXPECT_EQ(open_on(1, {{"EMULATED_CUDA_DEVICES", "2"}}, false), status::success);
  EXPECT_EQ(open_on(1, {{"EMULATED_CUDA_DEVICES", "2"}, {"EMULATED_CUDA_PEERS", "0"}}, false),
            status::peer_access_unsupported);
  EXPECT_EQ(open_on(0, {{"EMULATED_CUDA_PEERS", "0"}}, false), status::success);
}

TEST(emulated_cuda_settings, limits_and_error_codes_of_open_are_set_by_environment) {
  EXPECT_EQ(open_on(0, {{"EMULATED_CUDA_MAX_MAPPINGS", "0"}}, false), status::out_of_memory);
  EXPECT_EQ(open_on(0, {}, true), status::invalid_value);
  EXPECT_EQ(open_on(0, {{"EMULATED_CUDA_FREED", "400"}}, true), status::invalid_handle);
}

}  // namespace
}  // namespace emulated_cuda_settings_test
