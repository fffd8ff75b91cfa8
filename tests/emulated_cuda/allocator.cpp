// SPDX-License-Identifier: BSD-3-Clause
#include "allocator.hpp"

#include "addresses.hpp"

#include <algorithm>
#include <unistd.h>

namespace emulated_cuda {

namespace {

struct block {
  device_pointer base = 0;
  device of = 0;
  memory_pool pool = nullptr;
  std::uint64_t id = 0;
  std::uint64_t free = granularity;
  std::map<std::uint64_t, std::uint64_t> used{};  // offset, end

  /// Returns the lowest offset that fits; `granularity` where none does.
  [[nodiscard]] std::uint64_t place_for(std::uint64_t bytes) const noexcept;
};

std::map<device_pointer, block>& blocks() {
  static auto* const all = new std::map<device_pointer, block>;
  return *all;
}

bool shares_a_page(std::uint64_t bytes) noexcept { return bytes < page; }

std::uint64_t rounded(std::uint64_t bytes) noexcept { return up_to(bytes, shares_a_page(bytes) ? smallest : page); }

/// Moves the offset so that an allocation that shares a page does not cross its end.
std::uint64_t allowed(std::uint64_t offset, std::uint64_t bytes) noexcept {
  if (!shares_a_page(bytes)) return up_to(offset, page);
  return offset % page + bytes <= page ? offset : up_to(offset, page);
}

std::uint64_t block::place_for(std::uint64_t bytes) const noexcept {
  if (free < bytes) return granularity;
  std::uint64_t at = 0;
  for (const auto& [begin, end] : used) {
    if (at + bytes <= begin) return at;
    at = allowed(std::max(at, end), bytes);
  }
  return at + bytes <= granularity ? at : granularity;
}

block* new_block(driver& all, const request& wanted) {
  const device_pointer base = all.addresses.take(granularity, granularity);
  if (base == 0) return nullptr;
  if (!all.charge(wanted.of, granularity)) {
    all.addresses.give_back(base);
    return nullptr;
  }
  return &(blocks()[base] = block{base, wanted.of, wanted.pool, all.next_id()});
}

void drop_if_empty(driver& all, device_pointer base) noexcept {
  const auto found = blocks().find(base);
  if (found == blocks().end() || !found->second.used.empty()) return;
  all.used_bytes[static_cast<std::size_t>(found->second.of)] -= granularity;
  all.addresses.give_back(base);
  blocks().erase(found);
}

range described(driver& all, const request& wanted, device_pointer base) noexcept {
  range made;
  made.from = wanted.from;
  made.base = base;
  made.bytes = wanted.bytes;
  made.context = wanted.context;
  made.of = wanted.of;
  made.id = all.next_id();
  made.reserved = base;
  made.reserved_bytes = wanted.bytes;
  made.handle_types = wanted.handle_types;
  made.pool = wanted.pool;
  return made;
}

label label_for(const request& wanted, const range& made, std::uint64_t bytes) noexcept {
  label about;
  about.data_bytes = bytes;
  about.block_id = made.block_id;
  about.pool = wanted.pool_id;
  about.device = wanted.of;
  about.handle_types = static_cast<std::uint32_t>(wanted.handle_types);
  if (made.from == origin::allocated) {
    about.base = made.base / page * page;
    about.maker = ::getpid();
  }
  return about;
}

/// Returns the memory of a page that other allocations share already.
std::shared_ptr<backing> shared_page(driver& all, device_pointer first) noexcept {
  const auto begin = all.ranges.lower_bound(first);
  return begin != all.ranges.end() && begin->first < first + page ? begin->second.memory : nullptr;
}

/// Gives the range memory of its own, or its part of a shared page.
bool back(driver& all, const request& wanted, range& made) {
  const device_pointer first = made.base / page * page;
  made.memory_offset = made.base - first;
  if (shares_a_page(made.bytes)) made.memory = shared_page(all, first);
  if (!made.memory) {
    const std::uint64_t bytes = up_to(made.memory_offset + made.bytes, page);
    auto memory = make_backing(label_for(wanted, made, bytes));
    if (!memory) return false;
    made.memory = std::make_shared<backing>(std::move(*memory));
    if (!map_backing(*made.memory, 0, bytes, first, access_rights::read_write)) return false;
  }
  made.memory->set_serial(made.memory_offset, made.id);
  return true;
}

status allocate_small(driver& all, const request& wanted, device_pointer* out) {
  const std::uint64_t bytes = rounded(wanted.bytes);
  block* in = nullptr;
  for (auto& [base, each] : blocks()) {
    if (each.of == wanted.of && each.pool == wanted.pool && each.place_for(bytes) != granularity) {
      in = &each;
      break;
    }
  }
  if (in == nullptr) in = new_block(all, wanted);
  if (in == nullptr) return status::out_of_memory;
  const std::uint64_t offset = in->place_for(bytes);
  range made = described(all, wanted, in->base + offset);
  made.block_id = in->id;
  made.mapping = in->base;
  made.mapping_bytes = granularity;
  if (!back(all, wanted, made)) {
    forget_memory(made.base / page * page, up_to(bytes, page));
    drop_if_empty(all, in->base);
    return status::out_of_memory;
  }
  *out = made.base;
  in->used.emplace(offset, offset + bytes);
  in->free -= bytes;
  all.ranges.emplace(made.base, std::move(made));
  return status::success;
}

status allocate_large(driver& all, const request& wanted, device_pointer* out) {
  if (wanted.bytes > all.set.memory_bytes) return status::out_of_memory;
  const std::uint64_t bytes = up_to(wanted.bytes, granularity);
  const device_pointer base = all.addresses.take(bytes, granularity);
  if (base == 0) return status::out_of_memory;
  if (!all.charge(wanted.of, bytes)) {
    all.addresses.give_back(base);
    return status::out_of_memory;
  }
  range made = described(all, wanted, base);
  made.block_id = all.next_id();
  made.mapping = base;
  made.mapping_bytes = bytes;
  if (!back(all, wanted, made)) {
    all.used_bytes[static_cast<std::size_t>(wanted.of)] -= bytes;
    all.addresses.give_back(base);
    return status::out_of_memory;
  }
  *out = base;
  all.ranges.emplace(base, std::move(made));
  return status::success;
}

void free_small(driver& all, const range& gone, bool last_of_page) noexcept {
  const device_pointer first = gone.base / page * page;
  if (last_of_page) forget_memory(first, up_to(gone.end(), page) - first);
  block& in = blocks().at(gone.mapping);
  in.used.erase(gone.base - gone.mapping);
  in.free += rounded(gone.bytes);
  drop_if_empty(all, gone.mapping);
}

}  // namespace

status allocate(driver& all, const request& wanted, device_pointer* made) {
  if (wanted.bytes == 0) return status::invalid_value;
  return wanted.bytes < granularity ? allocate_small(all, wanted, made) : allocate_large(all, wanted, made);
}

void free_memory(driver& all, device_pointer base) noexcept {
  const auto found = all.ranges.find(base);
  const range gone = std::move(found->second);
  all.ranges.erase(found);
  gone.memory->set_serial(gone.memory_offset, 0);
  if (gone.bytes < granularity) {
    free_small(all, gone, gone.memory.use_count() == 1);
  } else {
    all.used_bytes[static_cast<std::size_t>(gone.of)] -= gone.mapping_bytes;
    all.addresses.give_back(gone.base);
  }
}

bool is_allocation(const range& here) noexcept {
  return here.from == origin::allocated || here.from == origin::managed || here.from == origin::pooled;
}

}  // namespace emulated_cuda
