// SPDX-License-Identifier: BSD-3-Clause
// What can_open and then open say of GPU memory where the importing process has no driver, another set of devices, or
// a driver that refuses. The emulated driver reads its settings when it is loaded: children alone load it.
#include "support/fixtures/emulated_cuda.hpp"
#include "support/processes/child_process.hpp"

#include <pinfold/importers/cuda_ipc.hpp>

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace pinfold::testing::cuda_can_open_test {
namespace {

using cuda::status;
using setting = std::pair<const char*, const char*>;
using settings = std::vector<setting>;

void set_all(const settings& all) {
  ::setenv("PINFOLD_CUDA_LIBRARY", PINFOLD_EMULATED_CUDA, 1);
  for (const auto& [name, value] : all) ::setenv(name, value, 1);
}

cuda::device_pointer segment_on(const emulated_driver& own, cuda::device device) {
  cuda::allocation_properties wanted{};
  wanted.type = cuda::allocation_type::pinned;
  wanted.requested_handle_types = cuda::allocation_handle_type::posix_file_descriptor;
  wanted.where = {cuda::location_type::on_device, device};
  cuda::generic_allocation physical = 0;
  cuda::device_pointer at = 0;
  EXPECT_EQ(own.cu.mem_create(&physical, 2 * mib, &wanted, 0), status::success);
  EXPECT_EQ(own.cu.mem_address_reserve(&at, 2 * mib, 0, 0, 0), status::success);
  EXPECT_EQ(own.cu.mem_map(at, 2 * mib, 0, physical, 0), status::success);
  return at;
}

cuda::device_pointer pooled_on(const emulated_driver& own, cuda::device device) {
  cuda::pool_properties wanted{};
  wanted.type = cuda::allocation_type::pinned;
  wanted.handle_types = cuda::allocation_handle_type::posix_file_descriptor;
  wanted.where = {cuda::location_type::on_device, device};
  cuda::memory_pool pool = nullptr;
  cuda::device_pointer at = 0;
  EXPECT_EQ(own.cu.mem_pool_create(&pool, &wanted), status::success);
  EXPECT_EQ(own.cu.mem_alloc_from_pool_async(&at, 64 * kib, pool, nullptr), status::success);
  return at;
}

cuda::device_pointer memory_on(const emulated_driver& own, cuda_memory_kind kind, cuda::device device) {
  if (kind == cuda_memory_kind::segments) return segment_on(own, device);
  if (kind == cuda_memory_kind::pool) return pooled_on(own, device);
  cuda::device_pointer at = 0;
  EXPECT_EQ(own.cu.mem_alloc(&at, 64 * kib), status::success);
  return at;
}

/// A process with two devices that shares memory of one of them until the test ends.
class exporting {
 public:
  exporting(cuda_memory_kind kind, cuda::device device)
      : child_([=](line& parent) noexcept {
          set_all({{"EMULATED_CUDA_DEVICES", "2"}});
          emulated_driver own;
          own.start(device);
          auto exporter = cuda_ipc_exporter::create().value();
          parent.send(exporter.share(memory_on(own, kind, device)).value().handle);
          parent.receive<int>();
          return 0;
        }),
        handle_(child_.talk().receive<cuda_ipc_handle>().value()) {}

  [[nodiscard]] const cuda_ipc_handle& handle() const noexcept { return handle_; }

 private:
  child_process child_;
  cuda_ipc_handle handle_;
};

constexpr int success = -1;

/// What one question got: a code or `success`, and the driver's own code.
struct outcome_of {
  int code = success;
  int native = 0;
  friend bool operator==(const outcome_of&, const outcome_of&) noexcept = default;
};
struct answers {
  outcome_of asked;
  outcome_of opened;
};

template <class T>
outcome_of outcome(const result<T>& got) {
  return got ? outcome_of{} : outcome_of{static_cast<int>(got.error().code), got.error().native};
}

/// Asks `can_open` and then `open` in a process with these settings.
answers answers_with(const settings& all, const cuda_ipc_handle& handle, int device = 0) {
  child_process other([&](line& parent) noexcept {
    set_all(all);
    cuda_ipc_importer importer({.device = device});
    const auto asked = importer.can_open(handle);
    const auto opened = importer.open({1}, handle);
    return parent.send(answers{outcome(asked), outcome(opened)}) ? 0 : 1;
  });
  return other.talk().receive<answers>().value();
}

void expect_both(const answers& got, errc code) {
  EXPECT_EQ(got.asked.code, static_cast<int>(code));
  EXPECT_EQ(got.opened.code, static_cast<int>(code));
}
void expect_success(const answers& got) {
  EXPECT_EQ(got.asked.code, success);
  EXPECT_EQ(got.opened.code, success);
}

class cuda_can_open : public ::testing::TestWithParam<cuda_memory_kind> {
 protected:
  exporting first{GetParam(), 0};
  exporting second{GetParam(), 1};
};

std::string name_of_kind(const ::testing::TestParamInfo<cuda_memory_kind>& of) {
  switch (of.param) {
    case cuda_memory_kind::allocation: return "allocation";
    case cuda_memory_kind::segments: return "segments";
    case cuda_memory_kind::pool: return "pool";
  }
  return "unknown";
}

INSTANTIATE_TEST_SUITE_P(kinds, cuda_can_open,
                         ::testing::Values(cuda_memory_kind::allocation, cuda_memory_kind::segments,
                                           cuda_memory_kind::pool),
                         name_of_kind);

TEST_P(cuda_can_open, a_missing_driver_is_told) {
  expect_both(answers_with({{"PINFOLD_CUDA_LIBRARY", "/nonexistent/libcuda.so.1"}}, first.handle()), errc::unsupported);
}

TEST_P(cuda_can_open, a_driver_without_devices_is_told) {
  const auto got = answers_with({{"EMULATED_CUDA_DEVICES", "0"}}, first.handle());
  expect_both(got, errc::unsupported);
  EXPECT_EQ(got.asked.native, static_cast<int>(status::no_device));
  EXPECT_EQ(got.opened.native, static_cast<int>(status::no_device));
}

TEST_P(cuda_can_open, memory_of_a_hidden_device_is_told) {
  const settings one{{"EMULATED_CUDA_DEVICES", "1"}};
  expect_both(answers_with(one, second.handle()), errc::unsupported);
  expect_success(answers_with(one, first.handle()));
}

TEST_P(cuda_can_open, devices_that_cannot_reach_each_other_are_told) {
  const settings apart{{"EMULATED_CUDA_DEVICES", "2"}, {"EMULATED_CUDA_PEERS", "0"}};
  expect_both(answers_with(apart, second.handle(), 0), errc::unsupported);
  expect_both(answers_with(apart, first.handle(), 1), errc::unsupported);
  expect_success(answers_with(apart, second.handle(), 1));
  expect_success(answers_with({{"EMULATED_CUDA_DEVICES", "2"}}, second.handle(), 0));
}

TEST_P(cuda_can_open, an_importer_of_a_device_that_does_not_exist_is_told) {
  expect_both(answers_with({{"EMULATED_CUDA_DEVICES", "2"}}, first.handle(), 2), errc::invalid_argument);
}

TEST_P(cuda_can_open, a_driver_that_does_not_answer_is_told_with_its_code) {
  constexpr int unknown = static_cast<int>(status::unknown);
  for (const std::string call : {"cuDeviceGetCount", "cuDeviceGetUuid", "cuDeviceCanAccessPeer"}) {
    const auto refusal = call + "=1:" + std::to_string(unknown) + ":forever";
    const auto got =
        answers_with({{"EMULATED_CUDA_DEVICES", "2"}, {"EMULATED_CUDA_FAIL", refusal.c_str()}}, second.handle());
    EXPECT_EQ(got.asked, (outcome_of{static_cast<int>(errc::driver_error), unknown})) << call;
  }
}

}  // namespace
}  // namespace pinfold::testing::cuda_can_open_test
