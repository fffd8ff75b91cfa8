// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Type-stable memory for records, and the link from a record to its shard.
#pragma once

#include "index/entry.hpp"
#include "os/mutex.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pinfold::core {
struct shard;
}

namespace pinfold::index {

using detail::record;

/// A shard's mutex, and a pointer to the shard while it exists. A thread that gave a pin back may look for the shard
/// after its engine has ended, so control blocks are never freed, only reused.
struct alignas(64) control_block {
  explicit control_block(std::uint64_t of) noexcept : process(of) {}

  os::mutex guard;
  core::shard* home PINFOLD_GUARDED_BY(guard) = nullptr;
  std::atomic<const void*> engine{nullptr};  ///< the shard's engine, only compared
  const std::uint64_t process;    ///< its number in the event log; late threads read it while the block is reused
  control_block* next = nullptr;  ///< while unused
};

/// The header of a page of records. The records follow it, close together, as hits read nothing else; then an entry for
/// each record; at the end of the page, the entries' own pin counters. Pages are never unmapped, only reused for
/// records of the same size: a late reader sees a record, though perhaps another cache's. The pin counters keep their
/// values: a ledger may offset them (one thread pinned in a slot, another gave the lease back), so that only their sum
/// is 0 when no thread holds the record.
struct alignas(64) record_page {
  static constexpr std::size_t bytes = detail::record_page_bytes;

  std::atomic<control_block*> owner{nullptr};
  record_page* next = nullptr;         ///< of the same owner, or while unused
  std::uint32_t stride = 0;            ///< bytes from one record to the next
  std::uint32_t capacity = 0;          ///< how many records fit
  std::atomic<std::uint32_t> made{0};  ///< how many records were ever made, from the front
  bool imported = false;               ///< whether its records have an `imported_part`; set by its owner
  std::uint32_t entries_from = 0;      ///< bytes from here to the entries
  const std::uint32_t links_from;      ///< the value of a link to the page's first byte
  std::uint32_t inverse = 0;           ///< of the stride in units of 32 bytes, times 2^16, rounded up
  /// For each record, when eviction's hand last found it in use, in `ticks`; null: its owner does not keep that.
  std::uint32_t* used_at = nullptr;

  record_page(std::uint32_t record_stride, std::uint32_t first_link) noexcept
      : stride(record_stride),
        capacity(capacity_for(record_stride)),
        entries_from(static_cast<std::uint32_t>(sizeof(record_page)) + capacity * record_stride),
        links_from(first_link),
        inverse((65536 + record_stride / 32 - 1) / (record_stride / 32)) {
    PINFOLD_ASSERT(capacity > 0 && record_stride % 32 == 0, "a page has room for records, which lie on their units");
  }

  [[nodiscard]] record* at(std::size_t number) noexcept { return reinterpret_cast<record*>(base() + number * stride); }
  [[nodiscard]] entry* entry_at(std::size_t number) noexcept { return entries() + number; }
  [[nodiscard]] std::atomic<std::int32_t>* own_pins(std::size_t number) noexcept {
    auto* end = reinterpret_cast<std::byte*>(this) + bytes;
    return reinterpret_cast<std::atomic<std::int32_t>*>(end) - 1 - number;
  }
  [[nodiscard]] std::size_t number_of(const record* one) noexcept {
    const auto units = static_cast<std::uint32_t>(reinterpret_cast<const std::byte*>(one) - base()) / 32;
    return units * inverse >> 16U;  // exact below 2^11 units: a page has 2^9
  }
  [[nodiscard]] std::size_t number_of(const entry* one) noexcept { return static_cast<std::size_t>(one - entries()); }

  /// Returns the page that a record or an entry lies in.
  [[nodiscard]] static record_page& of(const void* inside) noexcept {
    return *reinterpret_cast<record_page*>(reinterpret_cast<std::uintptr_t>(inside) & ~(bytes - 1));
  }
  [[nodiscard]] static entry& entry_of(const record* one) noexcept {
    record_page& page = of(one);
    return *page.entry_at(page.number_of(one));
  }

  /// Returns how many records of `stride` bytes a page holds.
  [[nodiscard]] static constexpr std::uint32_t capacity_for(std::size_t stride) noexcept {
    return static_cast<std::uint32_t>((bytes - 64) / (stride + sizeof(entry) + sizeof(std::atomic<std::int32_t>)));
  }

 private:
  [[nodiscard]] std::byte* base() noexcept { return reinterpret_cast<std::byte*>(this + 1); }
  [[nodiscard]] entry* entries() noexcept {
    return reinterpret_cast<entry*>(reinterpret_cast<std::byte*>(this) + entries_from);
  }
};
static_assert(sizeof(record_page) == 64 && sizeof(entry) == 32, "the documents state the bytes of a cached region");

/// The mappings that record pages lie in, in the order of their numbers. An `entry_link` is a mapping's number, and an
/// offset in units of 8 bytes. A mapping is never removed, so a link to an entry is valid as long as the process and
/// its children live.
struct record_mappings {
  static constexpr unsigned offset_bits = 17;
  static constexpr std::size_t largest = (std::size_t{1} << offset_bits) * 8;
  static constexpr std::size_t most = std::size_t{1} << (32 - offset_bits);  ///< together 32 GiB

  inline static std::array<std::byte*, most> first{};  ///< written before any of its pages is in use
};

inline entry_link::entry_link(const entry* to) noexcept {
  if (to == nullptr) return;
  const record_page& page = record_page::of(to);
  const auto offset = reinterpret_cast<const std::byte*>(to) - reinterpret_cast<const std::byte*>(&page);
  number_ = page.links_from + static_cast<std::uint32_t>(offset) / 8;
  PINFOLD_ASSERT(get() == to, "a link leads back to its entry");
}

// Never 0 for an entry: a page begins with its header.
inline entry* entry_link::get() const noexcept {
  if (number_ == 0) return nullptr;
  constexpr std::uint32_t offset_mask = (1U << record_mappings::offset_bits) - 1;
  std::byte* const mapping = record_mappings::first[number_ >> record_mappings::offset_bits];
  return reinterpret_cast<entry*>(mapping + std::size_t{number_ & offset_mask} * 8);
}

inline record* entry::hot() const noexcept {
  record_page& page = record_page::of(this);
  return page.at(page.number_of(this));
}

inline std::atomic<std::int32_t>& entry::own_pins() const noexcept {
  record_page& page = record_page::of(this);
  return *page.own_pins(page.number_of(this));
}

inline peer_id entry::peer() const noexcept {
  if (!record_page::of(this).imported) return {};
  return detail::imported_part_of(*hot()).peer;
}

inline std::uintptr_t entry::data() const noexcept {
  // Computed with numbers: local memory may be registered by addresses without an object, in tests even from 0 on.
  if (!record_page::of(this).imported) return hot()->covered().begin;
  return reinterpret_cast<std::uintptr_t>(detail::imported_part_of(*hot()).data);
}

inline std::uint32_t* entry::used_at() const noexcept {
  record_page& page = record_page::of(this);
  return page.used_at == nullptr ? nullptr : page.used_at + page.number_of(this);
}

inline void entry::cover(const range& where) noexcept {
  record* mine = hot();
  mine->begin.store(where.begin, std::memory_order_relaxed);
  mine->end.store(where.end, std::memory_order_relaxed);
}

inline std::uint32_t entry::era() const noexcept {
  const auto digits = hot()->era;
  return digits[0] | std::uint32_t{digits[1]} << 8U | std::uint32_t{digits[2]} << 16U;
}

inline void set_era(record& of, std::uint32_t now) noexcept {
  PINFOLD_ASSERT(now <= entry::last_era, "an era fits into three bytes");
  of.era = {static_cast<std::uint8_t>(now), static_cast<std::uint8_t>(now >> 8U),
            static_cast<std::uint8_t>(now >> 16U)};
}

inline void entry::set_era(std::uint32_t now) noexcept { index::set_era(*hot(), now); }

/// Returns the stride of records of `bytes` bytes. At most `largest_stride`.
[[nodiscard]] constexpr std::size_t stride_for(std::size_t bytes) noexcept { return (bytes + 31) / 32 * 32; }
inline constexpr std::size_t largest_stride = 1024;

// Any thread may call these. The first and the third return null if there is no memory.
[[nodiscard]] control_block* take_control_block() noexcept;
void give_back(control_block* done) noexcept;
[[nodiscard]] record_page* take_page(std::size_t stride) noexcept;
void give_back(record_page* done) noexcept;
/// Gives the memory of its records and entries back to the kernel, before the page is given back: they read as 0 until
/// the page is used again. Keeps the parts that share a system page with the header or with the pin counters.
void release_memory(record_page& done) noexcept;

}  // namespace pinfold::index
