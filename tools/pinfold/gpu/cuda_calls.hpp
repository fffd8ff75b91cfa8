// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The few calls of the CUDA driver with which the tool makes and copies GPU memory. The build needs no part of CUDA:
/// types are those of the driver's binary interface. pinfold itself is used through its public headers.
#pragma once

#include <pinfold/error.hpp>

#include <cstddef>
#include <cstdint>

namespace tool {

using cuda_pointer = std::uint64_t;  ///< CUdeviceptr

/// CUmemLocation
struct cuda_location {
  int type = 1;  ///< CU_MEM_LOCATION_TYPE_DEVICE
  int id = 0;
};

/// CUmemAllocationProp
struct cuda_allocation_properties {
  int type = 1;                    ///< CU_MEM_ALLOCATION_TYPE_PINNED
  int requested_handle_types = 1;  ///< CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
  cuda_location where;
  void* win32_metadata = nullptr;
  unsigned char flags[8] = {};
};

/// CUmemAccessDesc
struct cuda_access {
  cuda_location where;
  int flags = 3;  ///< CU_MEM_ACCESS_FLAGS_PROT_READWRITE
};

/// Each returns a CUresult.
struct cuda_calls {
  int (*init)(unsigned flags);
  int (*device_get)(int* made, int ordinal);
  int (*primary_context_retain)(void** retained, int device);
  int (*context_set_current)(void* wanted);
  int (*context_synchronize)();
  int (*memory_info)(std::size_t* free, std::size_t* total);
  int (*allocate)(cuda_pointer* made, std::size_t bytes);
  int (*free)(cuda_pointer freed);
  int (*to_host)(void* to, cuda_pointer from, std::size_t bytes);
  int (*from_host)(cuda_pointer to, const void* from, std::size_t bytes);
  int (*on_device)(cuda_pointer to, cuda_pointer from, std::size_t bytes);
  int (*set_bytes)(cuda_pointer to, unsigned char value, std::size_t bytes);
  // For segments; all are null where the driver has none.
  int (*granularity)(std::size_t* bytes, const cuda_allocation_properties* properties, int option);
  int (*reserve)(cuda_pointer* made, std::size_t bytes, std::size_t alignment, cuda_pointer hint,
                 unsigned long long flags);
  int (*unreserve)(cuda_pointer freed, std::size_t bytes);
  int (*create)(unsigned long long* made, std::size_t bytes, const cuda_allocation_properties* properties,
                unsigned long long flags);
  int (*release)(unsigned long long released);
  int (*map)(cuda_pointer at, std::size_t bytes, std::size_t offset, unsigned long long mapped,
             unsigned long long flags);
  int (*unmap)(cuda_pointer at, std::size_t bytes);
  int (*set_access)(cuda_pointer at, std::size_t bytes, const cuda_access* wanted, std::size_t count);
};

/// Loads the library that pinfold loads too (PINFOLD_CUDA_LIBRARY, or libcuda.so.1) on the first call, and initialises
/// it.
[[nodiscard]] pinfold::result<const cuda_calls*> load_cuda_calls() noexcept;

/// Converts the driver's answer: nothing, or an error with its code.
[[nodiscard]] pinfold::result<void> cuda_answer(int answer, const char* attempt) noexcept;

}  // namespace tool
