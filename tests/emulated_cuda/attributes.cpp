// SPDX-License-Identifier: BSD-3-Clause
#include "calls.hpp"

#include <cstring>
#include <variant>

namespace emulated_cuda {

namespace {

/// The value of an attribute; std::monostate when the pointer has no such attribute.
using answer = std::variant<std::monostate, int, std::uint64_t, void*>;

bool device_memory(const range& of) noexcept { return !is_host(of.from); }

answer about_mapping(const range& of, pointer_attribute wanted) noexcept {
  switch (wanted) {
    case pointer_attribute::range_start_addr: return of.reserved;
    case pointer_attribute::range_size: return of.reserved_bytes;
    case pointer_attribute::mapped: return 1;
    case pointer_attribute::mapping_base_addr: return of.mapping;
    case pointer_attribute::mapping_size: return of.mapping_bytes;
    case pointer_attribute::memory_block_id: return of.block_id;
    case pointer_attribute::allowed_handle_types: return of.handle_types;
    case pointer_attribute::access_flags: return static_cast<int>(of.rights);
    default: return {};
  }
}

answer about(const range& of, pointer_attribute wanted, device_pointer pointer) noexcept {
  switch (wanted) {
    case pointer_attribute::owning_context: return static_cast<void*>(of.context);
    case pointer_attribute::memory_type:
      return static_cast<int>(device_memory(of) ? memory_type::device_memory : memory_type::host_memory);
    case pointer_attribute::device_address: return pointer;
    case pointer_attribute::host_address:
      if (of.from != origin::managed && !is_host(of.from)) return {};
      return reinterpret_cast<void*>(pointer);
    case pointer_attribute::sync_memops: return 0;
    case pointer_attribute::buffer_id: return of.id;
    case pointer_attribute::is_managed: return of.from == origin::managed ? 1 : 0;
    case pointer_attribute::device_ordinal: return of.of;
    case pointer_attribute::is_legacy_cuda_ipc_capable: return of.from == origin::allocated ? 1 : 0;
    case pointer_attribute::mempool_handle: return static_cast<void*>(of.pool);
    default: return about_mapping(of, wanted);
  }
}

/// Answers for addresses that are reserved and have no memory.
answer about_reservation(const reservation& of, pointer_attribute wanted) noexcept {
  switch (wanted) {
    case pointer_attribute::range_start_addr: return of.base;
    case pointer_attribute::range_size: return of.bytes;
    case pointer_attribute::mapped: return 0;
    default: return {};
  }
}

answer about(driver& all, device_pointer pointer, pointer_attribute wanted) noexcept {
  if (const range* const found = all.find(pointer)) return about(*found, wanted, pointer);
  if (const reservation* const found = all.find_reservation(pointer)) return about_reservation(*found, wanted);
  return {};
}

/// Writes the value. Unsigned ints and booleans are stored as int.
bool write(void* into, const answer& value) noexcept {
  if (const int* const number = std::get_if<int>(&value)) {
    std::memcpy(into, number, sizeof *number);
  } else if (const auto* const wide = std::get_if<std::uint64_t>(&value)) {
    std::memcpy(into, wide, sizeof *wide);
  } else if (void* const* const pointer = std::get_if<void*>(&value)) {
    *static_cast<void**>(into) = *pointer;
  } else {
    return false;
  }
  return true;
}

void write_nothing(void* into, pointer_attribute wanted) noexcept {
  constexpr int no_device = -2;
  switch (wanted) {
    case pointer_attribute::device_ordinal: write(into, no_device); break;
    case pointer_attribute::memory_type:
    case pointer_attribute::sync_memops:
    case pointer_attribute::is_managed:
    case pointer_attribute::is_legacy_cuda_ipc_capable:
    case pointer_attribute::mapped:
    case pointer_attribute::access_flags: write(into, 0); break;
    default: write(into, std::uint64_t{0}); break;
  }
}

}  // namespace

EMULATED_CUDA_EXPORT status cuPointerGetAttribute(void* value, pointer_attribute wanted, device_pointer of) noexcept {
  return reading("cuPointerGetAttribute", [&](driver& all) {
    if (value == nullptr) return status::invalid_value;
    if (wanted == pointer_attribute::device_address && current().why != status::success) return current().why;
    return write(value, about(all, of, wanted)) ? status::success : status::invalid_value;
  });
}

EMULATED_CUDA_EXPORT status cuPointerGetAttributes(unsigned count, pointer_attribute* wanted, void** values,
                                                   device_pointer of) noexcept {
  return reading("cuPointerGetAttributes", [&](driver& all) {
    if (count == 0 || wanted == nullptr || values == nullptr) return status::invalid_value;
    for (unsigned i = 0; i < count; ++i) {
      if (!write(values[i], about(all, of, wanted[i]))) write_nothing(values[i], wanted[i]);
    }
    return status::success;
  });
}

}  // namespace emulated_cuda
