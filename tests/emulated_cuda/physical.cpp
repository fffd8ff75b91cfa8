// SPDX-License-Identifier: BSD-3-Clause
#include "physical.hpp"

#include "calls.hpp"

#include <fcntl.h>

namespace emulated_cuda {

namespace {

constexpr auto posix = allocation_handle_type::posix_file_descriptor;

status judge(const driver& all, const allocation_properties* wanted) noexcept {
  if (wanted == nullptr || wanted->type != allocation_type::pinned) return status::invalid_value;
  if (wanted->where.type != location_type::on_device) return status::not_supported;
  if (wanted->where.id < 0 || static_cast<unsigned>(wanted->where.id) >= all.set.devices) return status::invalid_device;
  const auto types = wanted->requested_handle_types;
  return types == allocation_handle_type::none || types == posix ? status::success : status::not_supported;
}

status create(driver& all, std::uint64_t bytes, const allocation_properties& wanted, generic_allocation* made) {
  if (!all.charge(wanted.where.id, bytes)) return status::out_of_memory;
  label about;
  about.data_bytes = bytes;
  about.block_id = all.next_id();
  about.device = wanted.where.id;
  about.handle_types = static_cast<std::uint32_t>(wanted.requested_handle_types);
  auto memory = make_backing(about);
  if (!memory) {
    all.used_bytes[static_cast<std::size_t>(wanted.where.id)] -= bytes;
    return status::out_of_memory;
  }
  *made = new_handle(std::make_shared<physical>(std::move(*memory), bytes));
  return status::success;
}

status import(driver& all, int number, generic_allocation* made) {
  auto memory = backing_of(descriptor(::fcntl(number, F_DUPFD_CLOEXEC, 0)));
  if (!memory || memory->about.pool != 0) return status::invalid_value;
  if (memory->about.handle_types != static_cast<std::uint32_t>(posix)) return status::invalid_value;
  if (static_cast<unsigned>(memory->about.device) >= all.set.devices) return status::not_supported;
  memory->about.block_id = all.next_id();
  *made = new_handle(std::make_shared<physical>(std::move(*memory), 0));
  return status::success;
}

}  // namespace

physical::~physical() { the_driver().used_bytes[static_cast<std::size_t>(memory.about.device)] -= charged; }

std::map<generic_allocation, allocation_handle>& handles() {
  static auto* const all = new std::map<generic_allocation, allocation_handle>;
  return *all;
}

generic_allocation new_handle(std::shared_ptr<physical> memory) {
  const generic_allocation number = (the_driver().next_id() << 8) | 1;
  handles().emplace(number, allocation_handle{std::move(memory), 1});
  return number;
}

EMULATED_CUDA_EXPORT status cuMemGetAllocationGranularity(std::size_t* bytes, const allocation_properties* properties,
                                                          allocation_granularity) noexcept {
  return reading("cuMemGetAllocationGranularity", [&](driver& all) {
    if (bytes == nullptr) return status::invalid_value;
    if (const status bad = judge(all, properties); bad != status::success) return bad;
    *bytes = granularity;
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuMemCreate(generic_allocation* made, std::size_t bytes,
                                        const allocation_properties* properties, unsigned long long flags) noexcept {
  return changing("cuMemCreate", [&](driver& all) {
    if (made == nullptr || flags != 0 || bytes == 0 || bytes % granularity != 0) return status::invalid_value;
    if (const status bad = judge(all, properties); bad != status::success) return bad;
    return create(all, bytes, *properties, made);
  });
}

EMULATED_CUDA_EXPORT status cuMemRelease(generic_allocation released) noexcept {
  return changing("cuMemRelease", [&](driver&) {
    const auto found = handles().find(released);
    if (found == handles().end()) return status::invalid_value;
    if (--found->second.references == 0) handles().erase(found);
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuMemGetAllocationPropertiesFromHandle(allocation_properties* properties,
                                                                   generic_allocation of) noexcept {
  return reading("cuMemGetAllocationPropertiesFromHandle", [&](driver&) {
    const auto found = handles().find(of);
    if (properties == nullptr || found == handles().end()) return status::invalid_value;
    const label& about = found->second.memory->memory.about;
    *properties = {.type = allocation_type::pinned,
                   .requested_handle_types = static_cast<allocation_handle_type>(about.handle_types),
                   .where = {location_type::on_device, about.device},
                   .win32_handle_metadata = nullptr,
                   .flags = {}};
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuMemExportToShareableHandle(void* exported, generic_allocation of,
                                                         allocation_handle_type type,
                                                         unsigned long long flags) noexcept {
  return reading("cuMemExportToShareableHandle", [&](driver&) {
    const auto found = handles().find(of);
    if (exported == nullptr || flags != 0 || type != posix || found == handles().end()) return status::invalid_value;
    const backing& memory = found->second.memory->memory;
    if (memory.about.handle_types != static_cast<std::uint32_t>(posix)) return status::invalid_value;
    const int number = ::fcntl(memory.file.number(), F_DUPFD_CLOEXEC, 0);
    if (number < 0) return status::out_of_memory;
    *static_cast<int*>(exported) = number;
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuMemImportFromShareableHandle(generic_allocation* made, void* exported,
                                                           allocation_handle_type type) noexcept {
  return changing("cuMemImportFromShareableHandle", [&](driver& all) {
    if (made == nullptr || type != posix) return status::invalid_value;
    return import(all, static_cast<int>(reinterpret_cast<std::intptr_t>(exported)), made);
  });
}

}  // namespace emulated_cuda
