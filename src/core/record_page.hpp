// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory for records that stays memory for records, and the way from a record to its engine.
#pragma once

#include "core/entry.hpp"
#include "core/mutex.hpp"

#include <pinfold/detail/engine.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace pinfold::core {

using detail::engine;
using detail::record;

/// An engine's mutex, and whether the engine is still there. Who gave a pin back may look for the engine when it has
/// ended already, so gates are never freed, but used again.
struct gate {
  mutex guard;
  engine* home PINFOLD_GUARDED_BY(guard) = nullptr;
  std::uint64_t process = 0;  ///< value of the process word, see process.hpp
  gate* next = nullptr;       ///< when it is nobody's
};

/// The head of a page of records; the records follow, and at the end of the page their own pins. Pages are never
/// unmapped, but used again, for records of the same size: a late reader sees a record, though perhaps another cache's.
/// The pins stay as they are: what a ledger has may be made up for there (a lease that one thread pinned in a slot and
/// another gave back), so that only their sum is 0 when nobody holds the record.
struct alignas(64) record_page {
  static constexpr std::size_t bytes = 4096;

  std::atomic<gate*> owner{nullptr};
  entry* entries = nullptr;     ///< one for each record
  std::uint32_t stride = 0;     ///< bytes from one record to the next
  record_page* next = nullptr;  ///< of the same owner, or when it is nobody's

  [[nodiscard]] std::size_t capacity() const noexcept {
    return (bytes - sizeof(record_page)) / (stride + sizeof(std::atomic<std::int32_t>));
  }
  [[nodiscard]] record* at(std::size_t number) noexcept {
    return reinterpret_cast<record*>(reinterpret_cast<std::byte*>(this + 1) + number * stride);
  }
  [[nodiscard]] std::atomic<std::int32_t>* own_pins(std::size_t number) noexcept {
    auto* end = reinterpret_cast<std::byte*>(this) + bytes;
    return reinterpret_cast<std::atomic<std::int32_t>*>(end) - 1 - number;
  }
  [[nodiscard]] static record_page& of(const record* one) noexcept {
    return *reinterpret_cast<record_page*>(reinterpret_cast<std::uintptr_t>(one) & ~(bytes - 1));
  }
  [[nodiscard]] std::size_t number_of(const record* one) noexcept {
    const auto first = reinterpret_cast<std::uintptr_t>(this + 1);
    return (reinterpret_cast<std::uintptr_t>(one) - first) / stride;
  }
  /// Requires that the page is an engine's.
  [[nodiscard]] static entry& entry_of(const record* one) noexcept;
};

inline entry& record_page::entry_of(const record* one) noexcept {
  record_page& page = of(one);
  return page.entries[page.number_of(one)];
}

/// What records of `bytes` bytes take. At most `largest_stride`.
[[nodiscard]] constexpr std::size_t stride_for(std::size_t bytes) noexcept { return (bytes + 31) / 32 * 32; }
inline constexpr std::size_t largest_stride = 1024;

// Any thread. Null when there is no memory.
[[nodiscard]] gate* take_gate() noexcept;
void give_back(gate* done) noexcept;
[[nodiscard]] record_page* take_page(std::size_t stride) noexcept;
void give_back(record_page* done) noexcept;

}  // namespace pinfold::core
