// SPDX-License-Identifier: BSD-3-Clause
#include "calls.hpp"
#include "physical.hpp"

#include <algorithm>
#include <sys/mman.h>

namespace emulated_cuda {

namespace {

struct mapped_handle {
  generic_allocation number = 0;
  std::shared_ptr<physical> memory;
};

/// The mappings by address; each has its entry in the driver's ranges.
std::map<device_pointer, mapped_handle>& mapped() {
  static auto* const all = new std::map<device_pointer, mapped_handle>;
  return *all;
}

bool power_of_two(std::uint64_t value) noexcept { return value != 0 && (value & (value - 1)) == 0; }

bool multiple(std::uint64_t a, std::uint64_t b) noexcept {
  return a != 0 && a % granularity == 0 && b % granularity == 0;
}

/// Returns whether the range consists of whole mappings.
bool whole_mappings(driver& all, device_pointer at, std::uint64_t bytes) noexcept {
  const device_pointer end = at + bytes;
  while (at < end) {
    const range* const found = all.find(at);
    if (found == nullptr || found->from != origin::mapped || found->base != at || found->end() > end) return false;
    at = found->end();
  }
  return bytes != 0;
}

template <class Use>
void for_each_mapping(driver& all, device_pointer at, std::uint64_t bytes, Use use) {
  for (auto each = all.ranges.find(at); each != all.ranges.end() && each->first < at + bytes;) {
    const auto now = each++;
    use(now);
  }
}

bool anything_in(driver& all, device_pointer at, std::uint64_t bytes) noexcept {
  const auto next = all.ranges.lower_bound(at);
  return all.find(at) != nullptr || (next != all.ranges.end() && next->first < at + bytes);
}

status map_memory(driver& all, const reservation& in, device_pointer at, std::uint64_t bytes, mapped_handle given) {
  range made;
  made.from = origin::mapped;
  made.base = made.mapping = at;
  made.bytes = made.mapping_bytes = bytes;
  made.of = given.memory->memory.about.device;
  made.id = all.next_id();
  made.block_id = given.memory->memory.about.block_id;
  made.reserved = in.base;
  made.reserved_bytes = in.bytes;
  made.handle_types = given.memory->memory.about.handle_types;
  made.rights = access_rights::none;
  if (!map_backing(given.memory->memory, 0, bytes, at, made.rights)) return status::out_of_memory;
  all.ranges.emplace(at, made);
  mapped().emplace(at, std::move(given));
  return status::success;
}

status judge(const driver& all, const access_description& wanted) noexcept {
  if (wanted.where.type != location_type::on_device) return status::not_supported;
  if (wanted.where.id < 0 || static_cast<unsigned>(wanted.where.id) >= all.set.devices) return status::invalid_device;
  const bool possible = wanted.flags == access_rights::none || wanted.flags == access_rights::read ||
                        wanted.flags == access_rights::read_write;
  return possible ? status::success : status::invalid_value;
}

bool out_of_reach(driver& all, const access_description& wanted, device_pointer at, std::uint64_t bytes) {
  bool found = false;
  for_each_mapping(all, at, bytes, [&](auto each) { found = found || each->second.of != wanted.where.id; });
  return found && !all.set.peers && wanted.flags != access_rights::none;
}

}  // namespace

EMULATED_CUDA_EXPORT status cuMemAddressReserve(device_pointer* made, std::size_t bytes, std::size_t alignment,
                                                device_pointer hint, unsigned long long flags) noexcept {
  return changing("cuMemAddressReserve", [&](driver& all) {
    const std::uint64_t aligned = std::max<std::uint64_t>(alignment, granularity);
    if (made == nullptr || flags != 0 || !multiple(bytes, 0) || !power_of_two(aligned)) return status::invalid_value;
    const device_pointer at = all.addresses.take(bytes, aligned, hint);
    if (at == 0) return status::out_of_memory;
    all.reservations.emplace(at, reservation{at, bytes});
    *made = at;
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuMemAddressFree(device_pointer freed, std::size_t bytes) noexcept {
  return changing("cuMemAddressFree", [&](driver& all) {
    const auto found = all.reservations.find(freed);
    if (found == all.reservations.end() || found->second.bytes != bytes) return status::invalid_value;
    if (anything_in(all, freed, bytes)) return status::invalid_value;
    all.addresses.give_back(freed);
    all.reservations.erase(found);
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuMemMap(device_pointer at, std::size_t bytes, std::size_t offset,
                                     generic_allocation wanted, unsigned long long flags) noexcept {
  return changing("cuMemMap", [&](driver& all) {
    const auto handle = handles().find(wanted);
    const reservation* const in = all.find_reservation(at);
    if (flags != 0 || offset != 0 || !multiple(bytes, at) || handle == handles().end() || in == nullptr) {
      return status::invalid_value;
    }
    if (bytes > in->base + in->bytes - at || bytes > handle->second.memory->bytes()) return status::invalid_value;
    if (anything_in(all, at, bytes)) return status::invalid_value;
    return map_memory(all, *in, at, bytes, {wanted, handle->second.memory});
  });
}

EMULATED_CUDA_EXPORT status cuMemUnmap(device_pointer at, std::size_t bytes) noexcept {
  return changing("cuMemUnmap", [&](driver& all) {
    if (!whole_mappings(all, at, bytes)) return status::invalid_value;
    forget_memory(at, bytes);
    for_each_mapping(all, at, bytes, [&](auto each) {
      mapped().erase(each->first);
      all.ranges.erase(each);
    });
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuMemSetAccess(device_pointer at, std::size_t bytes, const access_description* wanted,
                                           std::size_t count) noexcept {
  return changing("cuMemSetAccess", [&](driver& all) {
    if (wanted == nullptr || count == 0 || !whole_mappings(all, at, bytes)) return status::invalid_value;
    int rights = 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (const status bad = judge(all, wanted[i]); bad != status::success) return bad;
      if (out_of_reach(all, wanted[i], at, bytes)) return status::peer_access_unsupported;
      rights |= static_cast<int>(wanted[i].flags);
    }
    const auto granted = static_cast<access_rights>(rights);
    if (::mprotect(reinterpret_cast<void*>(at), bytes, protection_of(granted)) != 0) return status::out_of_memory;
    for_each_mapping(all, at, bytes, [&](auto each) { each->second.rights = granted; });
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuMemRetainAllocationHandle(generic_allocation* retained, void* inside) noexcept {
  return changing("cuMemRetainAllocationHandle", [&](driver& all) {
    const range* const found = all.find(reinterpret_cast<device_pointer>(inside));
    if (retained == nullptr || found == nullptr || found->from != origin::mapped) return status::invalid_value;
    const mapped_handle& given = mapped().at(found->base);
    const auto [handle, released] = handles().try_emplace(given.number, allocation_handle{given.memory, 0});
    ++handle->second.references;
    *retained = given.number;
    return status::success;
  });
}

}  // namespace emulated_cuda
