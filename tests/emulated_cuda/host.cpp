// SPDX-License-Identifier: BSD-3-Clause
#include "calls.hpp"

#include <sys/mman.h>
#include <vector>

namespace emulated_cuda {

namespace {

constexpr unsigned all_flags =
    host_register_portable | host_register_device_map | host_register_io_memory | host_register_read_only;

/// Faults the pages in, as pinning would: for writing, where the device may write.
bool all_present(device_pointer at, std::uint64_t bytes, access_rights rights) {
  const device_pointer first = at / page * page;
  const device_pointer end = (at + bytes + page - 1) / page * page;
  void* const memory = reinterpret_cast<void*>(first);
  const int how = rights == access_rights::read ? MADV_POPULATE_READ : MADV_POPULATE_WRITE;
  const bool known = ::madvise(memory, 0, how) == 0;
  if (known) return ::madvise(memory, end - first, how) == 0;
  std::vector<unsigned char> present((end - first) / page);  // before Linux 5.14: checks only that it is mapped
  return ::mincore(memory, end - first, present.data()) == 0;
}

bool overlaps(driver& all, device_pointer at, std::uint64_t bytes) noexcept {
  const auto next = all.ranges.lower_bound(at);
  return all.find(at) != nullptr || (next != all.ranges.end() && next->first < at + bytes);
}

range host_range(driver& all, context_object& mine, device_pointer at, std::uint64_t bytes) {
  range made;
  made.base = made.mapping = made.reserved = at;
  made.bytes = made.mapping_bytes = made.reserved_bytes = bytes;
  made.context = &mine;
  made.of = mine.of;
  made.id = all.next_id();
  made.block_id = all.next_id();
  return made;
}

std::uint64_t in_pages(std::uint64_t bytes) noexcept { return (bytes + page - 1) / page * page; }

}  // namespace

EMULATED_CUDA_EXPORT status cuMemHostAlloc(void** made, std::size_t bytes, unsigned flags) noexcept {
  return changing_in_context("cuMemHostAlloc", [&](driver& all, context_object& mine) {
    if (made == nullptr || bytes == 0 || flags > 7) return status::invalid_value;
    void* const fresh =
        ::mmap(nullptr, in_pages(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (fresh == MAP_FAILED) return status::out_of_memory;
    range described = host_range(all, mine, reinterpret_cast<device_pointer>(fresh), bytes);
    described.from = origin::host_allocated;
    described.portable = true;
    all.ranges.emplace(described.base, described);
    *made = fresh;
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuMemFreeHost(void* freed) noexcept {
  return changing_in_context("cuMemFreeHost", [&](driver& all, context_object&) {
    const auto found = all.ranges.find(reinterpret_cast<device_pointer>(freed));
    if (found == all.ranges.end() || found->second.from != origin::host_allocated) return status::invalid_value;
    ::munmap(freed, in_pages(found->second.bytes));
    all.ranges.erase(found);
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuMemHostRegister_v2(void* memory, std::size_t bytes, unsigned flags) noexcept {
  return changing_in_context("cuMemHostRegister_v2", [&](driver& all, context_object& mine) {
    const auto at = reinterpret_cast<device_pointer>(memory);
    if (at == 0 || bytes == 0 || bytes > UINT64_MAX - page - at || (flags & ~all_flags) != 0) {
      return status::invalid_value;
    }
    const range* const there = all.find(at);
    if (there != nullptr && there->from == origin::host_allocated) return status::invalid_value;
    if (overlaps(all, at, bytes)) return status::host_memory_already_registered;
    const auto rights = (flags & host_register_read_only) != 0 ? access_rights::read : access_rights::read_write;
    if (all.addresses.contains(at) || !all_present(at, bytes, rights)) return status::invalid_value;
    range made = host_range(all, mine, at, bytes);
    made.from = origin::registered;
    made.rights = rights;
    made.portable = (flags & host_register_portable) != 0;
    all.ranges.emplace(at, made);
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuMemHostUnregister(void* memory) noexcept {
  return changing_in_context("cuMemHostUnregister", [&](driver& all, context_object&) {
    const auto found = all.ranges.find(reinterpret_cast<device_pointer>(memory));
    if (found == all.ranges.end() || found->second.from != origin::registered) {
      return status::host_memory_not_registered;
    }
    all.ranges.erase(found);
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuMemHostGetDevicePointer_v2(device_pointer* at, void* memory, unsigned flags) noexcept {
  return reading_in_context("cuMemHostGetDevicePointer_v2", [&](driver& all, context_object& mine) {
    const auto inside = reinterpret_cast<device_pointer>(memory);
    const range* const found = all.find(inside);
    if (at == nullptr || flags != 0 || found == nullptr || !is_host(found->from)) {
      return status::invalid_value;
    }
    if (!found->portable && found->context != &mine) return status::invalid_value;
    *at = inside;
    return status::success;
  });
}

void destroy_registrations_of(driver& all, const context_object& context) noexcept {
  for (const auto& [at, each] : all.ranges)
    if (each.from == origin::host_allocated && each.context == &context)
      ::munmap(reinterpret_cast<void*>(at), in_pages(each.bytes));
  std::erase_if(all.ranges,
                [&](const auto& each) { return is_host(each.second.from) && each.second.context == &context; });
}

}  // namespace emulated_cuda
