// SPDX-License-Identifier: BSD-3-Clause
#include "allocator.hpp"
#include "calls.hpp"
#include "ipc.hpp"
#include "pools.hpp"
#include "work.hpp"

#include <bit>

namespace emulated_cuda {

namespace {

/// Allocates at once; only the free is ordered in the stream.
status allocate_in(const destination& in, memory_pool pool, std::uint64_t bytes, device_pointer* made) {
  driver& all = the_driver();
  const std::unique_lock held(all.guard);
  memory_pool_object* const from = find_pool(pool == nullptr ? default_pool(in.context->of) : pool);
  if (made == nullptr || from == nullptr || from->imported) return status::invalid_value;
  return allocate(all,
                  {.from = origin::pooled,
                   .context = in.context,
                   .of = from->of,
                   .bytes = bytes,
                   .pool = from,
                   .pool_id = from->name(),
                   .handle_types = from->handle_types},
                  made);
}

status allocate_async(call which, device_pointer* made, std::uint64_t bytes, memory_pool pool, stream in) noexcept try {
  if (const status early = begin(which); early != status::success) return early;
  const destination found = find_stream(in);
  return found.why != status::success ? found.why : allocate_in(found, pool, bytes, made);
} catch (const std::bad_alloc&) {
  return status::out_of_memory;
}

status free_now(device_pointer freed) {
  driver& all = the_driver();
  const std::unique_lock held(all.guard);
  return free_any(all, freed) == status::success ? status::success : status::illegal_address;
}

bool can_be_freed(device_pointer freed) {
  driver& all = the_driver();
  const std::shared_lock held(all.guard);
  const auto found = all.ranges.find(freed);
  if (found == all.ranges.end()) return false;
  return is_allocation(found->second) || found->second.from == origin::pool_opened;
}

/// Returns the pointer of an earlier import of this memory. As in NVIDIA's driver, that is not counted.
device_pointer imported_before(const driver& all, memory_pool in, const backing& memory, std::uint64_t offset) {
  for (const auto& [base, each] : all.ranges) {
    const bool same = each.from == origin::pool_opened && each.pool == in && each.memory->inode == memory.inode;
    if (same && each.memory_offset == offset) return base;
  }
  return 0;
}

status import_pointer(driver& all, memory_handle wanted, memory_pool in, device_pointer* made) {
  if (wanted.magic != memory_handle::right_magic || of_this_process(wanted.file)) return status::invalid_value;
  std::shared_ptr<backing> memory;
  const status found = find_memory(all, wanted, memory);
  if (found != status::success) return found == status::out_of_memory ? found : status::invalid_value;
  if (memory->about.pool != in->name()) return status::invalid_value;
  *made = imported_before(all, in, *memory, wanted.offset);
  if (*made != 0) return status::success;
  range prepared;
  prepared.from = origin::pool_opened;
  prepared.pool = in;
  prepared.memory = memory;
  const status mapped = map_import(all, wanted, *memory, prepared);
  *made = prepared.base;
  return mapped;
}

}  // namespace

EMULATED_CUDA_EXPORT status cuMemAllocFromPoolAsync(device_pointer* made, std::size_t bytes, memory_pool from,
                                                    stream in) noexcept {
  if (from == nullptr) return status::invalid_value;
  return allocate_async("cuMemAllocFromPoolAsync", made, bytes, from, in);
}

EMULATED_CUDA_EXPORT status cuMemAllocAsync(device_pointer* made, std::size_t bytes, stream in) noexcept {
  return allocate_async("cuMemAllocAsync", made, bytes, nullptr, in);
}

EMULATED_CUDA_EXPORT status cuMemFreeAsync(device_pointer freed, stream in) noexcept try {
  if (const status early = begin("cuMemFreeAsync"); early != status::success) return early;
  const destination found = find_stream(in);
  if (found.why != status::success) return found.why;
  if (freed == 0) return status::success;
  if (!can_be_freed(freed)) return status::invalid_value;
  give_work(found, {{}, [=] { return free_now(freed); }});
  return status::success;
} catch (const std::bad_alloc&) {
  return status::out_of_memory;
}

EMULATED_CUDA_EXPORT status cuMemPoolExportPointer(pool_pointer_export* exported, device_pointer of) noexcept {
  return reading("cuMemPoolExportPointer", [&](driver& all) {
    const range* const found = all.find(of);
    if (exported == nullptr || found == nullptr || found->from != origin::pooled || found->handle_types == 0) {
      return status::invalid_value;
    }
    const memory_pool_object* const pool = find_pool(found->pool);
    if (pool == nullptr || !pool->exported) return status::invalid_value;
    *exported = std::bit_cast<pool_pointer_export>(handle_of(*found));
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuMemPoolImportPointer(device_pointer* made, memory_pool in,
                                                   pool_pointer_export* exported) noexcept {
  return changing("cuMemPoolImportPointer", [&](driver& all) {
    memory_pool_object* const pool = find_pool(in);
    if (made == nullptr || exported == nullptr || pool == nullptr || !pool->imported) return status::invalid_value;
    return import_pointer(all, std::bit_cast<memory_handle>(*exported), pool, made);
  });
}

}  // namespace emulated_cuda
