// SPDX-License-Identifier: BSD-3-Clause
#include "ipc.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

namespace emulated_cuda {

memory_handle handle_of(const range& allocation) noexcept {
  return {.of = allocation.of,
          .file = address_of(allocation.memory->file, allocation.memory->inode),
          .base = allocation.base,
          .bytes = allocation.bytes,
          .serial = allocation.id,
          .offset = allocation.memory_offset};
}

namespace {

/// As the driver was measured: handles of freed memory are not told from those of what lies there now.
status find_successor(const driver& all, memory_handle& wanted, std::shared_ptr<backing>& found) {
  if (all.set.freed != status::success) return all.set.freed;
  auto memory = backing_at(wanted.file.process, wanted.base);
  if (!memory) return status::invalid_value;
  const std::uint64_t offset = wanted.base - memory->about.base;
  const auto& serials = memory->about.serials;
  const auto slots = std::min<std::uint64_t>(offset / smallest + 1, serials.size());
  if (std::all_of(serials.begin(), serials.begin() + static_cast<std::ptrdiff_t>(slots),
                  [](std::uint64_t one) { return one == 0; }))
    return status::invalid_value;
  wanted.offset = offset;
  wanted.bytes = std::min(wanted.bytes, memory->about.data_bytes - offset);
  found = std::make_shared<backing>(std::move(*memory));
  return status::success;
}

}  // namespace

status find_memory(const driver& all, memory_handle& wanted, std::shared_ptr<backing>& found) {
  descriptor file = open_there(wanted.file);
  if (!file) {
    switch (errno) {
      case ESTALE: return find_successor(all, wanted, found);
      case EMFILE:
      case ENFILE:
      case ENOMEM: return status::out_of_memory;
      case ESRCH: return all.set.dead;
      default: return status::map_failed;
    }
  }
  auto memory = backing_of(std::move(file));
  if (!memory) return status::invalid_handle;
  const std::uint64_t slot = wanted.offset / smallest;
  if (slot >= memory->about.serials.size() || memory->about.serials[slot] != wanted.serial)
    return find_successor(all, wanted, found);
  found = std::make_shared<backing>(std::move(*memory));
  return status::success;
}

status map_import(driver& all, const memory_handle& wanted, const backing& memory, range& made) {
  const std::uint64_t inside = wanted.base % granularity;
  made.mapping_bytes = (inside + wanted.bytes + granularity - 1) / granularity * granularity;
  made.mapping = all.addresses.take(made.mapping_bytes, granularity);
  if (made.mapping == 0) return status::out_of_memory;
  made.base = made.mapping + inside;
  made.bytes = wanted.bytes;
  made.of = wanted.of;
  made.id = all.next_id();
  made.block_id = all.next_id();
  made.reserved = made.base;
  made.reserved_bytes = made.bytes;
  made.memory_offset = wanted.offset;
  if (!map_backing(memory, 0, memory.about.data_bytes, made.base - wanted.offset, access_rights::read_write)) {
    all.addresses.give_back(made.mapping);
    return status::out_of_memory;
  }
  all.ranges.emplace(made.base, made);
  return status::success;
}

}  // namespace emulated_cuda
