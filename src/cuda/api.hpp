// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The part of the CUDA driver's interface that pinfold calls, declared here so that the build needs no CUDA files.
///
/// The driver is loaded when the first CUDA object is made: libcuda.so.1, and each entry point of `entry_points` by its
/// exported symbol. Types, values and signatures are those of the driver's binary interface (CUDA 11.4 and later);
/// tests/unit/cuda_api_test.cpp compares each with cuda.h where that is installed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace pinfold::cuda {

using device = int;                             ///< CUdevice
using device_pointer = std::uint64_t;           ///< CUdeviceptr
using generic_allocation = unsigned long long;  ///< CUmemGenericAllocationHandle

using context = struct context_object*;          ///< CUcontext
using stream = struct stream_object*;            ///< CUstream; null is the default stream
using event = struct event_object*;              ///< CUevent
using memory_pool = struct memory_pool_object*;  ///< CUmemoryPool

/// CUresult. The driver may return codes that are not listed here.
enum class status : int {
  success = 0,
  invalid_value = 1,
  out_of_memory = 2,
  not_initialized = 3,
  deinitialized = 4,
  stub_library = 34,
  call_requires_newer_driver = 36,
  device_unavailable = 46,
  no_device = 100,
  invalid_device = 101,
  invalid_context = 201,
  map_failed = 205,
  unmap_failed = 206,
  already_mapped = 208,
  not_mapped = 211,
  ecc_uncorrectable = 214,
  unsupported_limit = 215,
  context_already_in_use = 216,
  peer_access_unsupported = 217,
  operating_system = 304,
  invalid_handle = 400,
  illegal_state = 401,
  not_found = 500,
  not_ready = 600,
  illegal_address = 700,
  peer_access_already_enabled = 704,
  peer_access_not_enabled = 705,
  primary_context_active = 708,
  context_is_destroyed = 709,
  too_many_peers = 711,
  host_memory_already_registered = 712,
  host_memory_not_registered = 713,
  launch_failed = 719,
  not_permitted = 800,
  not_supported = 801,
  system_not_ready = 802,
  system_driver_mismatch = 803,
  compat_not_supported_on_device = 804,
  timeout = 909,
  unknown = 999,
};

/// CUdevice_attribute
enum class device_attribute : int {
  compute_mode = 20,
  pci_bus_id = 33,
  pci_device_id = 34,
  unified_addressing = 41,
  pci_domain_id = 50,
  managed_memory = 83,
  concurrent_managed_access = 89,
  can_use_host_pointer_for_registered_mem = 91,
  host_register_supported = 99,
  virtual_memory_management_supported = 102,
  handle_type_posix_file_descriptor_supported = 103,
  read_only_host_register_supported = 113,
  memory_pools_supported = 115,
  mempool_supported_handle_types = 119,
  ipc_event_supported = 125,
};

/// CUpointer_attribute. The comments give the type that the driver writes.
enum class pointer_attribute : int {
  owning_context = 1,               ///< cuda::context
  memory_type = 2,                  ///< cuda::memory_type
  device_address = 3,               ///< cuda::device_pointer
  host_address = 4,                 ///< void*
  sync_memops = 6,                  ///< unsigned, 0 or 1
  buffer_id = 7,                    ///< unsigned long long; unique to this allocation in the process
  is_managed = 8,                   ///< unsigned, 0 or 1
  device_ordinal = 9,               ///< int
  is_legacy_cuda_ipc_capable = 10,  ///< int, 0 or 1
  range_start_addr = 11,            ///< cuda::device_pointer
  range_size = 12,                  ///< std::size_t
  mapped = 13,                      ///< int, 0 or 1
  allowed_handle_types = 14,        ///< std::uint64_t, a mask of allocation_handle_type
  access_flags = 16,                ///< cuda::access_rights
  mempool_handle = 17,              ///< cuda::memory_pool; null for memory without a pool
  mapping_size = 18,                ///< std::size_t
  mapping_base_addr = 19,           ///< cuda::device_pointer
  memory_block_id = 20,             ///< unsigned long long
};

/// CUmemorytype
enum class memory_type : int { host_memory = 1, device_memory = 2, array = 3, unified = 4 };

/// CUmemAllocationHandleType
enum class allocation_handle_type : int { none = 0, posix_file_descriptor = 1, win32 = 2, win32_kmt = 4, fabric = 8 };

/// CUmemAllocationType
enum class allocation_type : int { invalid = 0, pinned = 1 };

/// CUmemAllocationGranularity_flags
enum class allocation_granularity : int { minimum = 0, recommended = 1 };

/// CUmemLocationType
enum class location_type : int { invalid = 0, on_device = 1, on_host = 2, host_numa = 3, host_numa_current = 4 };

/// CUmemAccess_flags
enum class access_rights : int { none = 0, read = 1, read_write = 3 };

/// CUstreamCaptureMode
enum class capture_mode : int { global = 0, of_thread = 1, relaxed = 2 };

inline constexpr unsigned ipc_lazy_enable_peer_access = 1;  ///< cuIpcOpenMemHandle requires this flag

inline constexpr unsigned event_default = 0;
inline constexpr unsigned event_blocking_sync = 1;
inline constexpr unsigned event_disable_timing = 2;
inline constexpr unsigned event_interprocess = 4;  ///< requires event_disable_timing

inline constexpr unsigned stream_default = 0;
inline constexpr unsigned stream_non_blocking = 1;

inline constexpr unsigned attach_global = 1;
inline constexpr unsigned attach_host = 2;
inline constexpr unsigned attach_single = 4;

inline constexpr unsigned host_register_portable = 1;
inline constexpr unsigned host_register_device_map = 2;
inline constexpr unsigned host_register_io_memory = 4;
inline constexpr unsigned host_register_read_only = 8;

/// CUuuid
struct uuid {
  char bytes[16];
};

/// CUipcMemHandle
struct ipc_memory_handle {
  char reserved[64];
};

/// CUipcEventHandle
struct ipc_event_handle {
  char reserved[64];
};

/// CUmemLocation
struct location {
  location_type type;
  int id;
};

/// CUmemAllocationProp
struct allocation_properties {
  allocation_type type;
  allocation_handle_type requested_handle_types;
  location where;
  void* win32_handle_metadata;
  struct {
    unsigned char compression_type;
    unsigned char gpu_direct_rdma_capable;
    unsigned short usage;
    unsigned char reserved[4];
  } flags;
};

/// CUmemAccessDesc
struct access_description {
  location where;
  access_rights flags;
};

/// CUmemPoolProps
struct pool_properties {
  allocation_type type;
  allocation_handle_type handle_types;
  location where;
  void* win32_security_attributes;
  std::size_t max_size;
  unsigned short usage;
  unsigned char reserved[54];
};

/// CUmemPoolPtrExportData
struct pool_pointer_export {
  unsigned char reserved[64];
};

/// The driver's entry points, by their names without the prefix. Null: this driver lacks the entry point.
struct driver_table {
  status (*init)(unsigned flags);
  status (*driver_get_version)(int* version);
  status (*get_error_name)(status code, const char** name);
  status (*get_error_string)(status code, const char** text);

  status (*device_get_count)(int* count);
  status (*device_get)(device* made, int ordinal);
  status (*device_get_uuid)(uuid* id, device of);
  status (*device_can_access_peer)(int* possible, device from, device to);
  status (*device_get_name)(char* name, int room, device of);
  status (*device_get_attribute)(int* value, device_attribute wanted, device of);
  status (*device_total_mem)(std::size_t* bytes, device of);
  status (*device_primary_ctx_retain)(context* retained, device of);
  status (*device_primary_ctx_release)(device of);
  status (*device_primary_ctx_reset)(device of);

  status (*ctx_push_current)(context pushed);
  status (*ctx_pop_current)(context* popped);
  status (*ctx_get_current)(context* current);
  status (*ctx_set_current)(context wanted);
  status (*ctx_get_device)(device* current);
  status (*ctx_synchronize)();
  status (*ctx_get_id)(context of, unsigned long long* id);
  status (*thread_exchange_stream_capture_mode)(capture_mode* exchanged);

  status (*mem_alloc)(device_pointer* made, std::size_t bytes);
  status (*mem_free)(device_pointer freed);
  status (*mem_alloc_managed)(device_pointer* made, std::size_t bytes, unsigned flags);
  status (*mem_get_info)(std::size_t* free, std::size_t* total);
  status (*mem_get_address_range)(device_pointer* base, std::size_t* bytes, device_pointer inside);
  status (*pointer_get_attribute)(void* value, pointer_attribute wanted, device_pointer of);
  status (*pointer_get_attributes)(unsigned count, pointer_attribute* wanted, void** values, device_pointer of);

  status (*ipc_get_mem_handle)(ipc_memory_handle* handle, device_pointer inside);
  status (*ipc_open_mem_handle)(device_pointer* mapped, ipc_memory_handle handle, unsigned flags);
  status (*ipc_close_mem_handle)(device_pointer mapped);
  status (*ipc_get_event_handle)(ipc_event_handle* handle, event of);
  status (*ipc_open_event_handle)(event* opened, ipc_event_handle handle);

  status (*event_create)(event* made, unsigned flags);
  status (*event_destroy)(event destroyed);
  status (*event_record)(event recorded, stream in);
  status (*event_query)(event asked);
  status (*event_synchronize)(event awaited);
  status (*stream_create)(stream* made, unsigned flags);
  status (*stream_destroy)(stream destroyed);
  status (*stream_synchronize)(stream awaited);
  status (*stream_wait_event)(stream waiting, event awaited, unsigned flags);

  status (*memcpy_d_to_h)(void* to, device_pointer from, std::size_t bytes);
  status (*memcpy_h_to_d)(device_pointer to, const void* from, std::size_t bytes);
  status (*memcpy_d_to_d)(device_pointer to, device_pointer from, std::size_t bytes);
  status (*memcpy_async)(device_pointer to, device_pointer from, std::size_t bytes, stream in);
  status (*memset_d8)(device_pointer to, unsigned char value, std::size_t bytes);

  status (*mem_address_reserve)(device_pointer* made, std::size_t bytes, std::size_t alignment, device_pointer hint,
                                unsigned long long flags);
  status (*mem_address_free)(device_pointer freed, std::size_t bytes);
  status (*mem_create)(generic_allocation* made, std::size_t bytes, const allocation_properties* properties,
                       unsigned long long flags);
  status (*mem_release)(generic_allocation released);
  status (*mem_map)(device_pointer at, std::size_t bytes, std::size_t offset, generic_allocation mapped,
                    unsigned long long flags);
  status (*mem_unmap)(device_pointer at, std::size_t bytes);
  status (*mem_set_access)(device_pointer at, std::size_t bytes, const access_description* wanted, std::size_t count);
  status (*mem_retain_allocation_handle)(generic_allocation* retained, void* inside);
  status (*mem_export_to_shareable_handle)(void* exported, generic_allocation of, allocation_handle_type type,
                                           unsigned long long flags);
  status (*mem_import_from_shareable_handle)(generic_allocation* made, void* exported, allocation_handle_type type);
  status (*mem_get_allocation_granularity)(std::size_t* bytes, const allocation_properties* properties,
                                           allocation_granularity option);
  status (*mem_get_allocation_properties_from_handle)(allocation_properties* properties, generic_allocation of);

  status (*mem_pool_create)(memory_pool* made, const pool_properties* properties);
  status (*mem_pool_destroy)(memory_pool destroyed);
  status (*mem_pool_set_access)(memory_pool of, const access_description* wanted, std::size_t count);
  status (*mem_alloc_from_pool_async)(device_pointer* made, std::size_t bytes, memory_pool from, stream in);
  status (*mem_alloc_async)(device_pointer* made, std::size_t bytes, stream in);
  status (*mem_free_async)(device_pointer freed, stream in);
  status (*mem_pool_export_to_shareable_handle)(void* exported, memory_pool of, allocation_handle_type type,
                                                unsigned long long flags);
  status (*mem_pool_import_from_shareable_handle)(memory_pool* made, void* exported, allocation_handle_type type,
                                                  unsigned long long flags);
  status (*mem_pool_export_pointer)(pool_pointer_export* exported, device_pointer of);
  status (*mem_pool_import_pointer)(device_pointer* made, memory_pool in, pool_pointer_export* exported);

  status (*mem_host_register)(void* memory, std::size_t bytes, unsigned flags);
  status (*mem_host_unregister)(void* memory);
  status (*mem_host_get_device_pointer)(device_pointer* at, void* memory, unsigned flags);
  status (*mem_host_alloc)(void** made, std::size_t bytes, unsigned flags);
  status (*mem_free_host)(void* freed);
};

/// pinfold cannot use a driver that lacks a required entry point. Some platforms lack optional ones.
enum class need : bool { optional, required };

/// The symbol of an entry point, and where its address is stored.
struct entry_point {
  const char* symbol;  ///< the driver's exported name, with its version
  std::size_t offset;  ///< in `driver_table`
  need wanted = need::required;
  const char* older = nullptr;  ///< used where `symbol` is missing; has the same signature
};

/// In the order of `driver_table`.
// clang-format off
inline constexpr std::array entry_points{
    entry_point{"cuInit", offsetof(driver_table, init)},
    entry_point{"cuDriverGetVersion", offsetof(driver_table, driver_get_version)},
    entry_point{"cuGetErrorName", offsetof(driver_table, get_error_name)},
    entry_point{"cuGetErrorString", offsetof(driver_table, get_error_string)},
    entry_point{"cuDeviceGetCount", offsetof(driver_table, device_get_count)},
    entry_point{"cuDeviceGet", offsetof(driver_table, device_get)},
    entry_point{"cuDeviceGetUuid_v2", offsetof(driver_table, device_get_uuid), need::required, "cuDeviceGetUuid"},
    entry_point{"cuDeviceCanAccessPeer", offsetof(driver_table, device_can_access_peer), need::optional},
    entry_point{"cuDeviceGetName", offsetof(driver_table, device_get_name)},
    entry_point{"cuDeviceGetAttribute", offsetof(driver_table, device_get_attribute)},
    entry_point{"cuDeviceTotalMem_v2", offsetof(driver_table, device_total_mem)},
    entry_point{"cuDevicePrimaryCtxRetain", offsetof(driver_table, device_primary_ctx_retain)},
    entry_point{"cuDevicePrimaryCtxRelease_v2", offsetof(driver_table, device_primary_ctx_release)},
    entry_point{"cuDevicePrimaryCtxReset_v2", offsetof(driver_table, device_primary_ctx_reset)},
    entry_point{"cuCtxPushCurrent_v2", offsetof(driver_table, ctx_push_current)},
    entry_point{"cuCtxPopCurrent_v2", offsetof(driver_table, ctx_pop_current)},
    entry_point{"cuCtxGetCurrent", offsetof(driver_table, ctx_get_current)},
    entry_point{"cuCtxSetCurrent", offsetof(driver_table, ctx_set_current)},
    entry_point{"cuCtxGetDevice", offsetof(driver_table, ctx_get_device)},
    entry_point{"cuCtxSynchronize", offsetof(driver_table, ctx_synchronize)},
    entry_point{"cuCtxGetId", offsetof(driver_table, ctx_get_id), need::optional},
    entry_point{"cuThreadExchangeStreamCaptureMode", offsetof(driver_table, thread_exchange_stream_capture_mode), need::optional},
    entry_point{"cuMemAlloc_v2", offsetof(driver_table, mem_alloc)},
    entry_point{"cuMemFree_v2", offsetof(driver_table, mem_free)},
    entry_point{"cuMemAllocManaged", offsetof(driver_table, mem_alloc_managed)},
    entry_point{"cuMemGetInfo_v2", offsetof(driver_table, mem_get_info)},
    entry_point{"cuMemGetAddressRange_v2", offsetof(driver_table, mem_get_address_range)},
    entry_point{"cuPointerGetAttribute", offsetof(driver_table, pointer_get_attribute)},
    entry_point{"cuPointerGetAttributes", offsetof(driver_table, pointer_get_attributes)},
    entry_point{"cuIpcGetMemHandle", offsetof(driver_table, ipc_get_mem_handle)},
    entry_point{"cuIpcOpenMemHandle_v2", offsetof(driver_table, ipc_open_mem_handle)},
    entry_point{"cuIpcCloseMemHandle", offsetof(driver_table, ipc_close_mem_handle)},
    entry_point{"cuIpcGetEventHandle", offsetof(driver_table, ipc_get_event_handle)},
    entry_point{"cuIpcOpenEventHandle", offsetof(driver_table, ipc_open_event_handle)},
    entry_point{"cuEventCreate", offsetof(driver_table, event_create)},
    entry_point{"cuEventDestroy_v2", offsetof(driver_table, event_destroy)},
    entry_point{"cuEventRecord", offsetof(driver_table, event_record)},
    entry_point{"cuEventQuery", offsetof(driver_table, event_query)},
    entry_point{"cuEventSynchronize", offsetof(driver_table, event_synchronize)},
    entry_point{"cuStreamCreate", offsetof(driver_table, stream_create)},
    entry_point{"cuStreamDestroy_v2", offsetof(driver_table, stream_destroy)},
    entry_point{"cuStreamSynchronize", offsetof(driver_table, stream_synchronize)},
    entry_point{"cuStreamWaitEvent", offsetof(driver_table, stream_wait_event)},
    entry_point{"cuMemcpyDtoH_v2", offsetof(driver_table, memcpy_d_to_h)},
    entry_point{"cuMemcpyHtoD_v2", offsetof(driver_table, memcpy_h_to_d)},
    entry_point{"cuMemcpyDtoD_v2", offsetof(driver_table, memcpy_d_to_d)},
    entry_point{"cuMemcpyAsync", offsetof(driver_table, memcpy_async)},
    entry_point{"cuMemsetD8_v2", offsetof(driver_table, memset_d8)},
    entry_point{"cuMemAddressReserve", offsetof(driver_table, mem_address_reserve), need::optional},
    entry_point{"cuMemAddressFree", offsetof(driver_table, mem_address_free), need::optional},
    entry_point{"cuMemCreate", offsetof(driver_table, mem_create), need::optional},
    entry_point{"cuMemRelease", offsetof(driver_table, mem_release), need::optional},
    entry_point{"cuMemMap", offsetof(driver_table, mem_map), need::optional},
    entry_point{"cuMemUnmap", offsetof(driver_table, mem_unmap), need::optional},
    entry_point{"cuMemSetAccess", offsetof(driver_table, mem_set_access), need::optional},
    entry_point{"cuMemRetainAllocationHandle", offsetof(driver_table, mem_retain_allocation_handle), need::optional},
    entry_point{"cuMemExportToShareableHandle", offsetof(driver_table, mem_export_to_shareable_handle), need::optional},
    entry_point{"cuMemImportFromShareableHandle", offsetof(driver_table, mem_import_from_shareable_handle), need::optional},
    entry_point{"cuMemGetAllocationGranularity", offsetof(driver_table, mem_get_allocation_granularity), need::optional},
    entry_point{"cuMemGetAllocationPropertiesFromHandle", offsetof(driver_table, mem_get_allocation_properties_from_handle), need::optional},
    entry_point{"cuMemPoolCreate", offsetof(driver_table, mem_pool_create), need::optional},
    entry_point{"cuMemPoolDestroy", offsetof(driver_table, mem_pool_destroy), need::optional},
    entry_point{"cuMemPoolSetAccess", offsetof(driver_table, mem_pool_set_access), need::optional},
    entry_point{"cuMemAllocFromPoolAsync", offsetof(driver_table, mem_alloc_from_pool_async), need::optional},
    entry_point{"cuMemAllocAsync", offsetof(driver_table, mem_alloc_async), need::optional},
    entry_point{"cuMemFreeAsync", offsetof(driver_table, mem_free_async), need::optional},
    entry_point{"cuMemPoolExportToShareableHandle", offsetof(driver_table, mem_pool_export_to_shareable_handle), need::optional},
    entry_point{"cuMemPoolImportFromShareableHandle", offsetof(driver_table, mem_pool_import_from_shareable_handle), need::optional},
    entry_point{"cuMemPoolExportPointer", offsetof(driver_table, mem_pool_export_pointer), need::optional},
    entry_point{"cuMemPoolImportPointer", offsetof(driver_table, mem_pool_import_pointer), need::optional},
    entry_point{"cuMemHostRegister_v2", offsetof(driver_table, mem_host_register)},
    entry_point{"cuMemHostUnregister", offsetof(driver_table, mem_host_unregister)},
    entry_point{"cuMemHostGetDevicePointer_v2", offsetof(driver_table, mem_host_get_device_pointer)},
    entry_point{"cuMemHostAlloc", offsetof(driver_table, mem_host_alloc), need::optional},
    entry_point{"cuMemFreeHost", offsetof(driver_table, mem_free_host), need::optional},
};
// clang-format on

static_assert(entry_points.size() * sizeof(void*) == sizeof(driver_table));

}  // namespace pinfold::cuda
