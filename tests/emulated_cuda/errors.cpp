// SPDX-License-Identifier: BSD-3-Clause
#include "calls.hpp"

namespace emulated_cuda {

namespace {

struct named_status {
  status code;
  const char* name;
};

constexpr named_status names[]{
    {status::success, "CUDA_SUCCESS"},
    {status::invalid_value, "CUDA_ERROR_INVALID_VALUE"},
    {status::out_of_memory, "CUDA_ERROR_OUT_OF_MEMORY"},
    {status::not_initialized, "CUDA_ERROR_NOT_INITIALIZED"},
    {status::deinitialized, "CUDA_ERROR_DEINITIALIZED"},
    {status::stub_library, "CUDA_ERROR_STUB_LIBRARY"},
    {status::call_requires_newer_driver, "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER"},
    {status::device_unavailable, "CUDA_ERROR_DEVICE_UNAVAILABLE"},
    {status::no_device, "CUDA_ERROR_NO_DEVICE"},
    {status::invalid_device, "CUDA_ERROR_INVALID_DEVICE"},
    {status::invalid_context, "CUDA_ERROR_INVALID_CONTEXT"},
    {status::map_failed, "CUDA_ERROR_MAP_FAILED"},
    {status::unmap_failed, "CUDA_ERROR_UNMAP_FAILED"},
    {status::already_mapped, "CUDA_ERROR_ALREADY_MAPPED"},
    {status::not_mapped, "CUDA_ERROR_NOT_MAPPED"},
    {status::ecc_uncorrectable, "CUDA_ERROR_ECC_UNCORRECTABLE"},
    {status::unsupported_limit, "CUDA_ERROR_UNSUPPORTED_LIMIT"},
    {status::context_already_in_use, "CUDA_ERROR_CONTEXT_ALREADY_IN_USE"},
    {status::peer_access_unsupported, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"},
    {status::operating_system, "CUDA_ERROR_OPERATING_SYSTEM"},
    {status::invalid_handle, "CUDA_ERROR_INVALID_HANDLE"},
    {status::illegal_state, "CUDA_ERROR_ILLEGAL_STATE"},
    {status::not_found, "CUDA_ERROR_NOT_FOUND"},
    {status::not_ready, "CUDA_ERROR_NOT_READY"},
    {status::illegal_address, "CUDA_ERROR_ILLEGAL_ADDRESS"},
    {status::peer_access_already_enabled, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"},
    {status::peer_access_not_enabled, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED"},
    {status::primary_context_active, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE"},
    {status::context_is_destroyed, "CUDA_ERROR_CONTEXT_IS_DESTROYED"},
    {status::too_many_peers, "CUDA_ERROR_TOO_MANY_PEERS"},
    {status::host_memory_already_registered, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
    {status::host_memory_not_registered, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"},
    {status::launch_failed, "CUDA_ERROR_LAUNCH_FAILED"},
    {status::not_permitted, "CUDA_ERROR_NOT_PERMITTED"},
    {status::not_supported, "CUDA_ERROR_NOT_SUPPORTED"},
    {status::system_not_ready, "CUDA_ERROR_SYSTEM_NOT_READY"},
    {status::system_driver_mismatch, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
    {status::compat_not_supported_on_device, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"},
    {status::timeout, "CUDA_ERROR_TIMEOUT"},
    {status::unknown, "CUDA_ERROR_UNKNOWN"},
};

status tell(call which, status code, const char** text) noexcept {
  if (const status early = begin_uninitialised(which); early != status::success) return early;
  if (text == nullptr) return status::invalid_value;
  *text = nullptr;
  for (const auto& each : names) {
    if (each.code == code) *text = each.name;
  }
  return *text == nullptr ? status::invalid_value : status::success;
}

}  // namespace

EMULATED_CUDA_EXPORT status cuGetErrorName(status code, const char** name) noexcept {
  return tell("cuGetErrorName", code, name);
}

/// Returns the name: no test depends on NVIDIA's texts.
EMULATED_CUDA_EXPORT status cuGetErrorString(status code, const char** text) noexcept {
  return tell("cuGetErrorString", code, text);
}

}  // namespace emulated_cuda
