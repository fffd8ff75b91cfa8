// SPDX-License-Identifier: BSD-3-Clause
#include "calls.hpp"

#include <cstdio>
#include <cstring>

namespace emulated_cuda {

namespace {

template <class Body>
status about_device(call which, const void* into, device of, Body body) noexcept {
  return reading(which, [&](driver& all) {
    if (into == nullptr) return status::invalid_value;
    if (of < 0 || static_cast<unsigned>(of) >= all.set.devices) return status::invalid_device;
    return body(all);
  });
}

/// Returns nothing for an unknown attribute.
std::optional<int> attribute_of(device of, device_attribute wanted, const settings& set) noexcept {
  switch (wanted) {
    case device_attribute::pci_bus_id: return of + 1;
    case device_attribute::compute_mode:
    case device_attribute::pci_device_id:
    case device_attribute::pci_domain_id: return 0;
    case device_attribute::mempool_supported_handle_types:
      return static_cast<int>(allocation_handle_type::posix_file_descriptor);
    case device_attribute::unified_addressing:
    case device_attribute::managed_memory:
    case device_attribute::concurrent_managed_access:
    case device_attribute::can_use_host_pointer_for_registered_mem:
    case device_attribute::host_register_supported:
    case device_attribute::virtual_memory_management_supported:
    case device_attribute::handle_type_posix_file_descriptor_supported:
    case device_attribute::read_only_host_register_supported:
    case device_attribute::memory_pools_supported:
    case device_attribute::ipc_event_supported: return set.devices > 0 ? 1 : 0;
  }
  return std::nullopt;
}

status uuid_of(call which, uuid* id, device of) noexcept {
  return about_device(which, id, of, [&](driver&) {
    std::memcpy(id->bytes, "emulated GPU  \0", sizeof id->bytes);
    id->bytes[13] = static_cast<char>('0' + of);
    return status::success;
  });
}

}  // namespace

EMULATED_CUDA_EXPORT status cuDeviceGetCount(int* count) noexcept {
  return reading("cuDeviceGetCount", [&](driver& all) {
    if (count == nullptr) return status::invalid_value;
    *count = static_cast<int>(all.set.devices);
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuDeviceGet(device* made, int ordinal) noexcept {
  return about_device("cuDeviceGet", made, ordinal, [&](driver&) {
    *made = ordinal;
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuDeviceCanAccessPeer(int* possible, device from, device to) noexcept {
  return about_device("cuDeviceCanAccessPeer", possible, from, [&](driver& all) {
    if (to < 0 || static_cast<unsigned>(to) >= all.set.devices) return status::invalid_device;
    *possible = from != to && all.set.peers ? 1 : 0;
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuDeviceGetUuid_v2(uuid* id, device of) noexcept {
  return uuid_of("cuDeviceGetUuid_v2", id, of);
}

EMULATED_CUDA_EXPORT status cuDeviceGetUuid(uuid* id, device of) noexcept {
  return uuid_of("cuDeviceGetUuid_v2", id, of);
}

EMULATED_CUDA_EXPORT status cuDeviceGetName(char* name, int room, device of) noexcept {
  return about_device("cuDeviceGetName", name, of, [&](driver&) {
    if (room <= 0) return status::invalid_value;
    std::snprintf(name, static_cast<std::size_t>(room), "emulated GPU %d (not real)", of);
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuDeviceGetAttribute(int* value, device_attribute wanted, device of) noexcept {
  return about_device("cuDeviceGetAttribute", value, of, [&](driver& all) {
    const auto known = attribute_of(of, wanted, all.set);
    if (!known) return status::invalid_value;
    *value = *known;
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuDeviceTotalMem_v2(std::size_t* bytes, device of) noexcept {
  return about_device("cuDeviceTotalMem_v2", bytes, of, [&](driver& all) {
    *bytes = all.set.memory_bytes;
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuDriverGetVersion(int* version) noexcept {
  if (const status early = begin_uninitialised("cuDriverGetVersion"); early != status::success) return early;
  if (version == nullptr) return status::invalid_value;
  *version = 13000;
  return status::success;
}

}  // namespace emulated_cuda
