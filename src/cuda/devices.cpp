// SPDX-License-Identifier: BSD-3-Clause
#include <pinfold/cuda.hpp>

#include "cuda/driver.hpp"

#include <array>
#include <cstring>

namespace pinfold {

namespace {

using cuda::device_attribute;
using cuda::status;

constexpr auto unknown_device = "the CUDA driver cannot describe a device";

bool has(const cuda::driver_table& calls, cuda::device of, device_attribute wanted) noexcept {
  int value = 0;
  return calls.device_get_attribute(&value, wanted, of) == status::success && value != 0;
}

bool pools_give_descriptors(const cuda::driver_table& calls, cuda::device of) noexcept {
  int mask = 0;
  const auto answer = calls.device_get_attribute(&mask, device_attribute::mempool_supported_handle_types, of);
  return answer == status::success &&
         (mask & static_cast<int>(cuda::allocation_handle_type::posix_file_descriptor)) != 0;
}

result<cuda_device_info> info_of(const cuda::driver_table& calls, int ordinal) {
  cuda::device device{};
  std::array<char, 256> name{};
  cuda::uuid id{};
  cuda_device_info info;
  info.ordinal = ordinal;
  for (const status answer :
       {calls.device_get(&device, ordinal), calls.device_get_name(name.data(), static_cast<int>(name.size()), device),
        calls.device_get_uuid(&id, device), calls.device_total_mem(&info.total_bytes, device)}) {
    if (answer != status::success) return cuda::fail_cuda(answer, unknown_device);
  }
  info.name = name.data();
  std::memcpy(info.uuid.data(), id.bytes, sizeof id.bytes);
  info.shares_segments = has(calls, device, device_attribute::virtual_memory_management_supported) &&
                         has(calls, device, device_attribute::handle_type_posix_file_descriptor_supported);
  info.shares_pools = pools_give_descriptors(calls, device);
  info.registers_host_memory = has(calls, device, device_attribute::host_register_supported);
  return info;
}

}  // namespace

result<std::vector<cuda_device_info>> cuda_devices() {
  const auto calls = cuda::driver();
  if (!calls) return tl::unexpected(calls.error());
  int count = 0;
  if (auto got = cuda::checked((*calls)->device_get_count(&count), unknown_device); !got)
    return tl::unexpected(got.error());
  std::vector<cuda_device_info> all;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    auto one = info_of(**calls, ordinal);
    if (!one) return tl::unexpected(one.error());
    all.push_back(std::move(*one));
  }
  return all;
}

std::string cuda_driver_text() { return cuda::driver_text(); }

}  // namespace pinfold
