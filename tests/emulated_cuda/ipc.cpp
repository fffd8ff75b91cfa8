// SPDX-License-Identifier: BSD-3-Clause
#include "ipc.hpp"

#include "calls.hpp"

#include <algorithm>
#include <bit>
#include <tuple>
#include <unordered_set>

namespace emulated_cuda {

namespace {

/// An imported mapping; the key in `open` is its address in this process.
struct import {
  context_object* context = nullptr;
  memory_handle handle;
  unsigned times = 1;
};

/// The place of an exporter's memory in its address space, and its serial.
using place = std::tuple<const context_object*, std::int32_t, std::uint64_t, std::uint64_t, std::uint64_t>;

struct import_table {
  std::map<device_pointer, import> open;
  std::map<place, device_pointer> by_place;
  std::unordered_set<device_pointer> closed;
  counters count{};
};

import_table& imports() {
  static auto* const all = new import_table;
  return *all;
}

bool same_exporter(const memory_handle& a, const memory_handle& b) noexcept {
  return a.file.process == b.file.process && a.file.start_time == b.file.start_time;
}

bool same_memory(const memory_handle& a, const memory_handle& b) noexcept {
  return same_exporter(a, b) && a.serial == b.serial && a.file.inode == b.file.inode;
}

bool overlap(const memory_handle& a, const memory_handle& b) noexcept {
  return same_exporter(a, b) && a.base < b.base + b.bytes && b.base < a.base + a.bytes;
}

using opening = std::map<device_pointer, import>::value_type;

place place_of(const context_object& mine, const memory_handle& of) noexcept {
  return {&mine, of.file.process, of.file.start_time, of.base, of.serial};
}

/// Returns the mapping of this context that is the same memory, or where others exclude it, the lowest that overlaps
/// it.
opening* in_the_way(const driver& all, const context_object& mine, const memory_handle& wanted) {
  const auto same = imports().by_place.find(place_of(mine, wanted));
  if (same != imports().by_place.end()) return &*imports().open.find(same->second);
  if (all.set.rule == second_open::counted) return nullptr;
  auto next = imports().by_place.lower_bound(place_of(mine, wanted));
  if (next != imports().by_place.begin()) --next;
  for (int looked = 0; looked < 2 && next != imports().by_place.end(); ++looked, ++next) {
    opening& found = *imports().open.find(next->second);
    if (found.second.context == &mine && overlap(found.second.handle, wanted)) return &found;
  }
  return nullptr;
}

status open_again(const driver& all, opening& existing, const memory_handle& wanted, device_pointer* mapped) {
  if (!same_memory(existing.second.handle, wanted) || all.set.rule == second_open::refused) {
    return status::already_mapped;
  }
  ++existing.second.times;
  ++imports().count.opens;
  *mapped = existing.first;
  return status::success;
}

/// Whether another context of the device has memory open that the exporter has on that device.
bool opens_in_another_context(const driver& all, const context_object& mine, const memory_handle& wanted) noexcept {
  if (all.made_contexts.empty()) return false;
  return std::any_of(imports().open.begin(), imports().open.end(), [&](const opening& each) {
    const import& one = each.second;
    return one.context != &mine && one.context->of == mine.of && one.handle.of == wanted.of &&
           same_exporter(one.handle, wanted);
  });
}

status judge(const driver& all, const context_object& mine, const memory_handle& wanted) noexcept {
  if (wanted.of < 0 || static_cast<unsigned>(wanted.of) >= all.set.devices) return status::invalid_device;
  if (wanted.of != mine.of && !all.set.peers) return status::peer_access_unsupported;
  if (opens_in_another_context(all, mine, wanted)) return status::invalid_handle;
  if (imports().open.size() >= all.set.max_mappings) return status::out_of_memory;
  return status::success;
}

status map_here(driver& all, context_object& mine, const memory_handle& wanted, device_pointer* mapped) {
  std::shared_ptr<backing> memory;
  memory_handle there = wanted;
  if (const status bad = find_memory(all, there, memory); bad != status::success) return bad;
  range made;
  made.from = origin::opened;
  made.context = &mine;
  if (const status bad = map_import(all, there, *memory, made); bad != status::success) return bad;
  *mapped = made.base;
  imports().open.emplace(made.base, import{&mine, wanted, 1});
  imports().by_place.emplace(place_of(mine, wanted), made.base);
  imports().closed.erase(made.base);
  ++imports().count.opens;
  ++imports().count.mapped;
  return status::success;
}

status open_handle(driver& all, context_object& mine, const memory_handle& wanted, device_pointer* mapped) {
  if (wanted.magic != memory_handle::right_magic) return status::invalid_handle;
  if (of_this_process(wanted.file)) return status::invalid_context;
  if (opening* const existing = in_the_way(all, mine, wanted)) return open_again(all, *existing, wanted, mapped);
  if (const status bad = judge(all, mine, wanted); bad != status::success) return bad;
  return map_here(all, mine, wanted, mapped);
}

void unmap(driver& all, std::map<device_pointer, import>::iterator gone) {
  imports().closed.insert(gone->first);
  imports().by_place.erase(place_of(*gone->second.context, gone->second.handle));
  all.addresses.give_back(all.ranges.at(gone->first).mapping);
  all.ranges.erase(gone->first);
  imports().open.erase(gone);
}

status refuse_close(device_pointer mapped) noexcept {
  ++(imports().closed.contains(mapped) ? imports().count.double_closes : imports().count.wrong_closes);
  return status::invalid_value;
}

}  // namespace

EMULATED_CUDA_EXPORT status cuIpcGetMemHandle(ipc_memory_handle* handle, device_pointer inside) noexcept {
  return reading_in_context("cuIpcGetMemHandle", [&](driver& all, context_object&) {
    const range* const found = all.find(inside);
    if (handle == nullptr || found == nullptr || found->from != origin::allocated) return status::invalid_value;
    *handle =
        std::bit_cast<ipc_memory_handle>(memory_handle{.of = found->of,
                                                       .file = address_of(found->memory->file, found->memory->inode),
                                                       .base = found->base,
                                                       .bytes = found->bytes,
                                                       .serial = found->id,
                                                       .offset = found->memory_offset});
    return status::success;
  });
}

EMULATED_CUDA_EXPORT status cuIpcOpenMemHandle_v2(device_pointer* mapped, ipc_memory_handle handle,
                                                  unsigned flags) noexcept {
  return changing_in_context("cuIpcOpenMemHandle_v2", [&](driver& all, context_object& mine) {
    if (mapped == nullptr || flags != ipc_lazy_enable_peer_access) return status::invalid_value;
    return open_handle(all, mine, std::bit_cast<memory_handle>(handle), mapped);
  });
}

// Before CUDA 11. Through the entry of the newer one, which a program may have changed.
EMULATED_CUDA_EXPORT status cuIpcOpenMemHandle(device_pointer* mapped, ipc_memory_handle handle,
                                               unsigned flags) noexcept {
  return cuIpcOpenMemHandle_v2(mapped, handle, flags);
}

EMULATED_CUDA_EXPORT status cuIpcCloseMemHandle(device_pointer mapped) noexcept {
  return changing_in_context("cuIpcCloseMemHandle", [&](driver& all, context_object& mine) {
    const auto found = imports().open.find(mapped);
    if (found == imports().open.end()) return refuse_close(mapped);
    if (found->second.context != &mine) return status::invalid_context;
    ++imports().count.closes;
    if (--found->second.times == 0) unmap(all, found);
    return status::success;
  });
}

void destroy_mappings_of(driver& all, const context_object& context) {
  for (auto each = imports().open.begin(); each != imports().open.end();) {
    const auto gone = each++;
    if (gone->second.context == &context) unmap(all, gone);
  }
}

void count_imports(const driver&, counters& into) noexcept {
  into = imports().count;
  into.live_mappings = imports().open.size();
  for (const auto& [at, each] : imports().open) into.bytes_open += each.handle.bytes;
}

void forget_import_counts() noexcept { imports().count = {}; }

}  // namespace emulated_cuda
