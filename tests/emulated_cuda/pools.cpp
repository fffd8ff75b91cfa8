// SPDX-License-Identifier: BSD-3-Clause
#include "pools.hpp"

#include "calls.hpp"
#include "physical.hpp"

#include <fcntl.h>
#include <memory>
#include <vector>

namespace emulated_cuda {

namespace {

constexpr auto pool_handle_type = allocation_handle_type::posix_file_descriptor;

std::vector<std::unique_ptr<memory_pool_object>>& pools() {
  static auto* const all = new std::vector<std::unique_ptr<memory_pool_object>>;
  return *all;
}

status judge(const driver& all, const pool_properties& wanted) noexcept {
  if (wanted.type != allocation_type::pinned) return status::invalid_value;
  if (wanted.where.type != location_type::on_device) return status::not_supported;
  if (wanted.where.id < 0 || static_cast<unsigned>(wanted.where.id) >= all.set.devices) return status::invalid_value;
  const bool possible = wanted.handle_types == allocation_handle_type::none || wanted.handle_types == pool_handle_type;
  return possible ? status::success : status::not_supported;
}

status create(const pool_properties& wanted, memory_pool* made) {
  label about;
  about.data_bytes = page;
  about.pool = is_pool;
  about.device = wanted.where.id;
  about.handle_types = static_cast<std::uint32_t>(wanted.handle_types);
  auto file = make_backing(about);
  if (!file) return status::out_of_memory;
  memory_pool_object pool;
  pool.of = wanted.where.id;
  pool.file = std::move(*file);
  pool.handle_types = about.handle_types;
  *made = add_pool(std::move(pool));
  return status::success;
}

status import(const driver& all, int number, memory_pool* made) {
  auto file = backing_of(descriptor(::fcntl(number, F_DUPFD_CLOEXEC, 0)));
  if (!file || file->about.pool != is_pool) return status::invalid_value;
  if (static_cast<unsigned>(file->about.device) >= all.set.devices) return status::invalid_value;
  memory_pool_object pool;
  pool.of = file->about.device;
  pool.file = std::move(*file);
  pool.imported = true;
  *made = add_pool(std::move(pool));
  return status::success;
}

}  // namespace

memory_pool_object* find_pool(memory_pool wanted) noexcept {
  for (const auto& each : pools()) {
    if (each.get() == wanted && !each->destroyed) return each.get();
  }
  return nullptr;
}

memory_pool add_pool(memory_pool_object made) {
  pools().push_back(std::make_unique<memory_pool_object>(std::move(made)));
  return pools().back().get();
}

memory_pool default_pool(device of) {
  for (const auto& each : pools()) {
    if (each->is_default && each->of == of) return each.get();
  }
  memory_pool_object made;
  made.of = of;
  made.is_default = true;
  return add_pool(std::move(made));
}

EMULATED_CUDA_EXPORT status cuMemPoolCreate(memory_pool* made, const pool_properties* properties) noexcept {
  return changing("cuMemPoolCreate", [&](driver& all) {
    if (made == nullptr || properties == nullptr) return status::invalid_value;
    if (const status bad = judge(all, *properties); bad != status::success) return bad;
    return create(*properties, made);
  });
}

EMULATED_CUDA_EXPORT status cuMemPoolDestroy(memory_pool destroyed) noexcept {
  return changing("cuMemPoolDestroy", [&](driver&) {
    memory_pool_object* const found = find_pool(destroyed);
    if (found == nullptr || found->is_default) return status::invalid_value;
    found->destroyed = true;
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuMemPoolSetAccess(memory_pool of, const access_description* wanted,
                                               std::size_t count) noexcept {
  return changing("cuMemPoolSetAccess", [&](driver& all) {
    if (find_pool(of) == nullptr || (wanted == nullptr && count != 0)) return status::invalid_value;
    for (std::size_t i = 0; i < count; ++i) {
      const location& where = wanted[i].where;
      const bool known =
          where.type == location_type::on_device && where.id >= 0 && static_cast<unsigned>(where.id) < all.set.devices;
      if (!known || (where.id == of->of && wanted[i].flags == access_rights::none)) return status::invalid_value;
      if (where.id != of->of && !all.set.peers) return status::peer_access_unsupported;
    }
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuMemPoolExportToShareableHandle(void* exported, memory_pool of,
                                                             allocation_handle_type type,
                                                             unsigned long long flags) noexcept {
  return changing("cuMemPoolExportToShareableHandle", [&](driver&) {
    memory_pool_object* const found = find_pool(of);
    if (exported == nullptr || found == nullptr || flags != 0 || type != pool_handle_type) return status::invalid_value;
    if (found->imported || found->handle_types != static_cast<std::uint64_t>(pool_handle_type))
      return status::invalid_value;
    const int number = ::fcntl(found->file.file.number(), F_DUPFD_CLOEXEC, 0);
    if (number < 0) return status::out_of_memory;
    *static_cast<int*>(exported) = number;
    found->exported = true;
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuMemPoolImportFromShareableHandle(memory_pool* made, void* exported,
                                                               allocation_handle_type type,
                                                               unsigned long long flags) noexcept {
  return changing("cuMemPoolImportFromShareableHandle", [&](driver& all) {
    if (made == nullptr || flags != 0 || type != pool_handle_type) return status::invalid_value;
    return import(all, static_cast<int>(reinterpret_cast<std::intptr_t>(exported)), made);
  });
}

}  // namespace emulated_cuda
