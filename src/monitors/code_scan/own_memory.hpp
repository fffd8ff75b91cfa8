// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Reads memory of this process that another thread may unmap meanwhile.
#pragma once

#include <pinfold/range.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <vector>

namespace pinfold::monitors::code_scan {

/// Copies `bytes` bytes from `at`. Returns false if any of them cannot be read; `into` is then undefined.
[[nodiscard]] bool read_memory(std::uintptr_t at, void* into, std::size_t bytes) noexcept;

template <class T>
[[nodiscard]] std::optional<T> read_object(std::uintptr_t at) noexcept {
  static_assert(std::is_trivially_copyable_v<T>);
  T object;
  if (!read_memory(at, &object, sizeof object)) return std::nullopt;
  return object;
}

/// Returns the bytes; nothing if any of them cannot be read. Throws `std::bad_alloc`.
[[nodiscard]] std::vector<std::uint8_t> read_bytes(const range& from);

}  // namespace pinfold::monitors::code_scan
