// SPDX-License-Identifier: BSD-3-Clause
// Compares our declarations of the CUDA driver with NVIDIA's own, wherever those are installed; the compiler does the
// test.
#include "cuda/api.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string_view>
#include <type_traits>

#if __has_include(<cuda.h>)
#include <cuda.h>
#endif

namespace cuda_api_test {
namespace {

using namespace pinfold::cuda;

TEST(cuda_api, each_entry_point_has_its_own_slot) {
  std::set<std::string_view> symbols;
  std::size_t offset = 0;
  for (const entry_point& each : entry_points) {
    EXPECT_TRUE(symbols.insert(each.symbol).second) << each.symbol;
    EXPECT_EQ(each.offset, offset) << each.symbol;
    offset += sizeof(void*);
  }
}

#ifdef CUDA_VERSION

template <class A, class B>
constexpr bool same(A ours, B theirs) noexcept {
  return static_cast<unsigned long long>(ours) == static_cast<unsigned long long>(theirs);
}

/// Whether both types are passed in the same way, and read in the same way through a pointer.
template <class A, class B>
constexpr bool alike() noexcept {
  if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>) {
    using a = std::remove_pointer_t<A>;
    using b = std::remove_pointer_t<B>;
    if constexpr (std::is_const_v<a> != std::is_const_v<b>) return false;
    if constexpr (std::is_void_v<a> || std::is_void_v<b>) return std::is_void_v<a> && std::is_void_v<b>;
    if constexpr (requires { sizeof(a); } && requires { sizeof(b); })
      return alike<std::remove_cv_t<a>, std::remove_cv_t<b>>();
    return !requires { sizeof(a); } && !requires { sizeof(b); };  // opaque in both
  } else if constexpr (std::is_class_v<A> && std::is_class_v<B>) {
    return sizeof(A) == sizeof(B) && alignof(A) == alignof(B) && std::is_trivially_copyable_v<B>;
  } else {
    constexpr bool numbers =
        (std::is_integral_v<A> || std::is_enum_v<A>) && (std::is_integral_v<B> || std::is_enum_v<B>);
    return numbers && std::is_enum_v<A> == std::is_enum_v<B> && sizeof(A) == sizeof(B);
  }
}

template <class Ours, class Theirs>
struct compared;
template <class A, class... As, class B, class... Bs>
struct compared<A (*)(As...), B (*)(Bs...)> {
  static constexpr bool equal() noexcept {
    if constexpr (sizeof...(As) != sizeof...(Bs))
      return false;
    else
      return alike<A, B>() && (alike<As, Bs>() && ...);
  }
};

static_assert(alike<device, CUdevice>() && alike<device_pointer, CUdeviceptr>());
static_assert(alike<generic_allocation, CUmemGenericAllocationHandle>());
static_assert(alike<context, CUcontext>() && alike<stream, CUstream>() && alike<event, CUevent>());
static_assert(alike<memory_pool, CUmemoryPool>() && alike<uuid, CUuuid>());
static_assert(alike<ipc_memory_handle, CUipcMemHandle>() && alike<ipc_event_handle, CUipcEventHandle>());
static_assert(alike<pool_pointer_export, CUmemPoolPtrExportData>());

static_assert(alike<location, CUmemLocation>());
static_assert(offsetof(location, type) == offsetof(CUmemLocation, type));
static_assert(offsetof(location, id) == offsetof(CUmemLocation, id));

using theirs = CUmemAllocationProp;
static_assert(alike<allocation_properties, theirs>());
static_assert(offsetof(allocation_properties, type) == offsetof(theirs, type));
static_assert(offsetof(allocation_properties, requested_handle_types) == offsetof(theirs, requestedHandleTypes));
static_assert(offsetof(allocation_properties, where) == offsetof(theirs, location));
static_assert(offsetof(allocation_properties, win32_handle_metadata) == offsetof(theirs, win32HandleMetaData));
static_assert(offsetof(allocation_properties, flags) == offsetof(theirs, allocFlags));
static_assert(offsetof(allocation_properties, flags.usage) == offsetof(theirs, allocFlags.usage));
static_assert(offsetof(allocation_properties, flags.gpu_direct_rdma_capable) ==
              offsetof(theirs, allocFlags.gpuDirectRDMACapable));

static_assert(alike<access_description, CUmemAccessDesc>());
static_assert(offsetof(access_description, where) == offsetof(CUmemAccessDesc, location));
static_assert(offsetof(access_description, flags) == offsetof(CUmemAccessDesc, flags));

static_assert(alike<pool_properties, CUmemPoolProps>());
static_assert(offsetof(pool_properties, type) == offsetof(CUmemPoolProps, allocType));
static_assert(offsetof(pool_properties, handle_types) == offsetof(CUmemPoolProps, handleTypes));
static_assert(offsetof(pool_properties, where) == offsetof(CUmemPoolProps, location));
static_assert(offsetof(pool_properties, win32_security_attributes) ==
              offsetof(CUmemPoolProps, win32SecurityAttributes));
static_assert(offsetof(pool_properties, max_size) == offsetof(CUmemPoolProps, maxSize));
static_assert(offsetof(pool_properties, usage) == offsetof(CUmemPoolProps, usage));

static_assert(same(event_default, CU_EVENT_DEFAULT) && same(event_blocking_sync, CU_EVENT_BLOCKING_SYNC));
static_assert(same(event_disable_timing, CU_EVENT_DISABLE_TIMING) && same(event_interprocess, CU_EVENT_INTERPROCESS));
static_assert(same(stream_default, CU_STREAM_DEFAULT) && same(stream_non_blocking, CU_STREAM_NON_BLOCKING));
static_assert(same(ipc_lazy_enable_peer_access, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
static_assert(same(attach_global, CU_MEM_ATTACH_GLOBAL) && same(attach_host, CU_MEM_ATTACH_HOST));
static_assert(same(attach_single, CU_MEM_ATTACH_SINGLE));
static_assert(same(host_register_portable, CU_MEMHOSTREGISTER_PORTABLE));
static_assert(same(host_register_device_map, CU_MEMHOSTREGISTER_DEVICEMAP));
static_assert(same(host_register_io_memory, CU_MEMHOSTREGISTER_IOMEMORY));
static_assert(same(host_register_read_only, CU_MEMHOSTREGISTER_READ_ONLY));

static_assert(same(status::success, CUDA_SUCCESS));
static_assert(same(status::invalid_value, CUDA_ERROR_INVALID_VALUE));
static_assert(same(status::out_of_memory, CUDA_ERROR_OUT_OF_MEMORY));
static_assert(same(status::not_initialized, CUDA_ERROR_NOT_INITIALIZED));
static_assert(same(status::deinitialized, CUDA_ERROR_DEINITIALIZED));
static_assert(same(status::stub_library, CUDA_ERROR_STUB_LIBRARY));
static_assert(same(status::call_requires_newer_driver, CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER));
static_assert(same(status::device_unavailable, CUDA_ERROR_DEVICE_UNAVAILABLE));
static_assert(same(status::no_device, CUDA_ERROR_NO_DEVICE));
static_assert(same(status::invalid_device, CUDA_ERROR_INVALID_DEVICE));
static_assert(same(status::invalid_context, CUDA_ERROR_INVALID_CONTEXT));
static_assert(same(status::map_failed, CUDA_ERROR_MAP_FAILED));
static_assert(same(status::unmap_failed, CUDA_ERROR_UNMAP_FAILED));
static_assert(same(status::already_mapped, CUDA_ERROR_ALREADY_MAPPED));
static_assert(same(status::not_mapped, CUDA_ERROR_NOT_MAPPED));
static_assert(same(status::ecc_uncorrectable, CUDA_ERROR_ECC_UNCORRECTABLE));
static_assert(same(status::unsupported_limit, CUDA_ERROR_UNSUPPORTED_LIMIT));
static_assert(same(status::context_already_in_use, CUDA_ERROR_CONTEXT_ALREADY_IN_USE));
static_assert(same(status::peer_access_unsupported, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED));
static_assert(same(status::operating_system, CUDA_ERROR_OPERATING_SYSTEM));
static_assert(same(status::invalid_handle, CUDA_ERROR_INVALID_HANDLE));
static_assert(same(status::illegal_state, CUDA_ERROR_ILLEGAL_STATE));
static_assert(same(status::not_found, CUDA_ERROR_NOT_FOUND));
static_assert(same(status::not_ready, CUDA_ERROR_NOT_READY));
static_assert(same(status::illegal_address, CUDA_ERROR_ILLEGAL_ADDRESS));
static_assert(same(status::peer_access_already_enabled, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED));
static_assert(same(status::peer_access_not_enabled, CUDA_ERROR_PEER_ACCESS_NOT_ENABLED));
static_assert(same(status::primary_context_active, CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE));
static_assert(same(status::context_is_destroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED));
static_assert(same(status::too_many_peers, CUDA_ERROR_TOO_MANY_PEERS));
static_assert(same(status::host_memory_already_registered, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED));
static_assert(same(status::host_memory_not_registered, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED));
static_assert(same(status::launch_failed, CUDA_ERROR_LAUNCH_FAILED));
static_assert(same(status::not_permitted, CUDA_ERROR_NOT_PERMITTED));
static_assert(same(status::not_supported, CUDA_ERROR_NOT_SUPPORTED));
static_assert(same(status::system_not_ready, CUDA_ERROR_SYSTEM_NOT_READY));
static_assert(same(status::system_driver_mismatch, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH));
static_assert(same(status::compat_not_supported_on_device, CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE));
static_assert(same(status::timeout, CUDA_ERROR_TIMEOUT));
static_assert(same(status::unknown, CUDA_ERROR_UNKNOWN));

static_assert(same(device_attribute::compute_mode, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE));
static_assert(same(device_attribute::pci_bus_id, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID));
static_assert(same(device_attribute::pci_device_id, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
static_assert(same(device_attribute::unified_addressing, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING));
static_assert(same(device_attribute::pci_domain_id, CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID));
static_assert(same(device_attribute::managed_memory, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY));
static_assert(same(device_attribute::concurrent_managed_access, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS));
static_assert(same(device_attribute::can_use_host_pointer_for_registered_mem,
                   CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM));
static_assert(same(device_attribute::host_register_supported, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED));
static_assert(same(device_attribute::virtual_memory_management_supported,
                   CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED));
static_assert(same(device_attribute::handle_type_posix_file_descriptor_supported,
                   CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED));
static_assert(same(device_attribute::read_only_host_register_supported,
                   CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED));
static_assert(same(device_attribute::memory_pools_supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED));
static_assert(same(device_attribute::mempool_supported_handle_types,
                   CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES));
static_assert(same(device_attribute::ipc_event_supported, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED));

static_assert(same(pointer_attribute::owning_context, CU_POINTER_ATTRIBUTE_CONTEXT));
static_assert(same(pointer_attribute::memory_type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE));
static_assert(same(pointer_attribute::device_address, CU_POINTER_ATTRIBUTE_DEVICE_POINTER));
static_assert(same(pointer_attribute::host_address, CU_POINTER_ATTRIBUTE_HOST_POINTER));
static_assert(same(pointer_attribute::sync_memops, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS));
static_assert(same(pointer_attribute::buffer_id, CU_POINTER_ATTRIBUTE_BUFFER_ID));
static_assert(same(pointer_attribute::is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED));
static_assert(same(pointer_attribute::device_ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL));
static_assert(same(pointer_attribute::is_legacy_cuda_ipc_capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE));
static_assert(same(pointer_attribute::range_start_addr, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR));
static_assert(same(pointer_attribute::range_size, CU_POINTER_ATTRIBUTE_RANGE_SIZE));
static_assert(same(pointer_attribute::mapped, CU_POINTER_ATTRIBUTE_MAPPED));
static_assert(same(pointer_attribute::allowed_handle_types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES));
static_assert(same(pointer_attribute::access_flags, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS));
static_assert(same(pointer_attribute::mempool_handle, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE));
static_assert(same(pointer_attribute::mapping_size, CU_POINTER_ATTRIBUTE_MAPPING_SIZE));
static_assert(same(pointer_attribute::mapping_base_addr, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR));
static_assert(same(pointer_attribute::memory_block_id, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID));

static_assert(same(memory_type::host_memory, CU_MEMORYTYPE_HOST));
static_assert(same(memory_type::device_memory, CU_MEMORYTYPE_DEVICE));
static_assert(same(memory_type::array, CU_MEMORYTYPE_ARRAY));
static_assert(same(memory_type::unified, CU_MEMORYTYPE_UNIFIED));
static_assert(same(allocation_handle_type::none, CU_MEM_HANDLE_TYPE_NONE));
static_assert(same(allocation_handle_type::posix_file_descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
static_assert(same(allocation_handle_type::win32, CU_MEM_HANDLE_TYPE_WIN32));
static_assert(same(allocation_handle_type::win32_kmt, CU_MEM_HANDLE_TYPE_WIN32_KMT));
static_assert(same(allocation_handle_type::fabric, CU_MEM_HANDLE_TYPE_FABRIC));
static_assert(same(allocation_type::invalid, CU_MEM_ALLOCATION_TYPE_INVALID));
static_assert(same(allocation_type::pinned, CU_MEM_ALLOCATION_TYPE_PINNED));
static_assert(same(allocation_granularity::minimum, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
static_assert(same(allocation_granularity::recommended, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
static_assert(same(location_type::invalid, CU_MEM_LOCATION_TYPE_INVALID));
static_assert(same(location_type::on_device, CU_MEM_LOCATION_TYPE_DEVICE));
static_assert(same(location_type::on_host, CU_MEM_LOCATION_TYPE_HOST));
static_assert(same(location_type::host_numa, CU_MEM_LOCATION_TYPE_HOST_NUMA));
static_assert(same(location_type::host_numa_current, CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT));
static_assert(same(access_rights::none, CU_MEM_ACCESS_FLAGS_PROT_NONE));
static_assert(same(access_rights::read, CU_MEM_ACCESS_FLAGS_PROT_READ));
static_assert(same(access_rights::read_write, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));

/// Returns the symbol of a member's entry point, which has to be the one that this version of cuda.h makes of the name.
consteval std::string_view symbol_at(std::size_t offset) { return entry_points[offset / sizeof(void*)].symbol; }

#define TEXT_OF(name) #name
#define SYMBOL(name) TEXT_OF(name)
#define COMPARE(member, name)                                                        \
  static_assert(compared<decltype(driver_table::member), decltype(&name)>::equal()); \
  static_assert(symbol_at(offsetof(driver_table, member)) == SYMBOL(name))

COMPARE(init, cuInit);
COMPARE(driver_get_version, cuDriverGetVersion);
COMPARE(get_error_name, cuGetErrorName);
COMPARE(get_error_string, cuGetErrorString);
COMPARE(device_get_count, cuDeviceGetCount);
COMPARE(device_get, cuDeviceGet);
COMPARE(device_get_uuid, cuDeviceGetUuid);
COMPARE(device_get_name, cuDeviceGetName);
COMPARE(device_get_attribute, cuDeviceGetAttribute);
COMPARE(device_total_mem, cuDeviceTotalMem);
COMPARE(device_primary_ctx_retain, cuDevicePrimaryCtxRetain);
COMPARE(device_primary_ctx_release, cuDevicePrimaryCtxRelease);
COMPARE(device_primary_ctx_reset, cuDevicePrimaryCtxReset);
COMPARE(ctx_push_current, cuCtxPushCurrent);
COMPARE(ctx_pop_current, cuCtxPopCurrent);
COMPARE(ctx_get_current, cuCtxGetCurrent);
COMPARE(ctx_set_current, cuCtxSetCurrent);
COMPARE(ctx_get_device, cuCtxGetDevice);
COMPARE(ctx_synchronize, cuCtxSynchronize);
COMPARE(ctx_get_id, cuCtxGetId);
COMPARE(thread_exchange_stream_capture_mode, cuThreadExchangeStreamCaptureMode);
COMPARE(mem_alloc, cuMemAlloc);
COMPARE(mem_free, cuMemFree);
COMPARE(mem_alloc_managed, cuMemAllocManaged);
COMPARE(mem_get_info, cuMemGetInfo);
COMPARE(mem_get_address_range, cuMemGetAddressRange);
COMPARE(pointer_get_attribute, cuPointerGetAttribute);
COMPARE(pointer_get_attributes, cuPointerGetAttributes);
COMPARE(ipc_get_mem_handle, cuIpcGetMemHandle);
COMPARE(ipc_open_mem_handle, cuIpcOpenMemHandle);
COMPARE(ipc_close_mem_handle, cuIpcCloseMemHandle);
COMPARE(ipc_get_event_handle, cuIpcGetEventHandle);
COMPARE(ipc_open_event_handle, cuIpcOpenEventHandle);
COMPARE(event_create, cuEventCreate);
COMPARE(event_destroy, cuEventDestroy);
COMPARE(event_record, cuEventRecord);
COMPARE(event_query, cuEventQuery);
COMPARE(event_synchronize, cuEventSynchronize);
COMPARE(stream_create, cuStreamCreate);
COMPARE(stream_destroy, cuStreamDestroy);
COMPARE(stream_synchronize, cuStreamSynchronize);
COMPARE(stream_wait_event, cuStreamWaitEvent);
COMPARE(memcpy_d_to_h, cuMemcpyDtoH);
COMPARE(memcpy_h_to_d, cuMemcpyHtoD);
COMPARE(memcpy_d_to_d, cuMemcpyDtoD);
COMPARE(memcpy_async, cuMemcpyAsync);
COMPARE(memset_d8, cuMemsetD8);
COMPARE(mem_address_reserve, cuMemAddressReserve);
COMPARE(mem_address_free, cuMemAddressFree);
COMPARE(mem_create, cuMemCreate);
COMPARE(mem_release, cuMemRelease);
COMPARE(mem_map, cuMemMap);
COMPARE(mem_unmap, cuMemUnmap);
COMPARE(mem_set_access, cuMemSetAccess);
COMPARE(mem_retain_allocation_handle, cuMemRetainAllocationHandle);
COMPARE(mem_export_to_shareable_handle, cuMemExportToShareableHandle);
COMPARE(mem_import_from_shareable_handle, cuMemImportFromShareableHandle);
COMPARE(mem_get_allocation_granularity, cuMemGetAllocationGranularity);
COMPARE(mem_get_allocation_properties_from_handle, cuMemGetAllocationPropertiesFromHandle);
COMPARE(mem_pool_create, cuMemPoolCreate);
COMPARE(mem_pool_destroy, cuMemPoolDestroy);
COMPARE(mem_pool_set_access, cuMemPoolSetAccess);
COMPARE(mem_alloc_from_pool_async, cuMemAllocFromPoolAsync);
COMPARE(mem_alloc_async, cuMemAllocAsync);
COMPARE(mem_free_async, cuMemFreeAsync);
COMPARE(mem_pool_export_to_shareable_handle, cuMemPoolExportToShareableHandle);
COMPARE(mem_pool_import_from_shareable_handle, cuMemPoolImportFromShareableHandle);
COMPARE(mem_pool_export_pointer, cuMemPoolExportPointer);
COMPARE(mem_pool_import_pointer, cuMemPoolImportPointer);
COMPARE(mem_host_register, cuMemHostRegister);
COMPARE(mem_host_unregister, cuMemHostUnregister);
COMPARE(mem_host_get_device_pointer, cuMemHostGetDevicePointer);

#else

TEST(cuda_api, declarations_match_cuda_h) { GTEST_SKIP() << "cuda.h is not installed: nothing to compare with"; }

#endif

}  // namespace
}  // namespace cuda_api_test
