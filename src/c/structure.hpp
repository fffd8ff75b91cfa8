// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Structures that begin with their size, so that later versions can append members.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace pinfold::c {

/// Longer than the structures of any version: a size beyond it was never set.
inline constexpr std::size_t longest_structure = 4096;

/// Copies the caller's structure into `known`, whose other members stay unchanged. Returns false if there is no
/// structure, if its size is less than `least` or belongs to no version, or if the part that this version does not know
/// is not 0.
template <class T>
[[nodiscard]] bool read(const T* given, T& known, std::size_t least = sizeof(T)) noexcept {
  static_assert(std::is_trivially_copyable_v<T> && std::is_same_v<decltype(T::size), std::size_t>);
  if (given == nullptr || given->size < least || given->size > longest_structure) return false;
  if (given->size % alignof(T) != 0) return false;
  const auto* bytes = reinterpret_cast<const std::byte*>(given);
  if (given->size > sizeof(T) &&
      std::any_of(bytes + sizeof(T), bytes + given->size, [](std::byte one) { return one != std::byte{0}; }))
    return false;
  std::memcpy(&known, given, std::min(given->size, sizeof(T)));
  known.size = sizeof(T);
  return true;
}

/// Copies the members for which the caller's structure has room. Returns false if it has no size.
template <class T>
[[nodiscard]] bool write(const T& known, T* to, std::size_t least = sizeof(T)) noexcept {
  if (to == nullptr || to->size < least) return false;
  const auto size = to->size;
  std::memcpy(to, &known, std::min(size, sizeof(T)));
  to->size = size;
  return true;
}

}  // namespace pinfold::c
