// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory of whole pages, from mmap alone. No cache is involved, since its monitors would tell all other caches too.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

namespace tool {

class remappable_memory {
 public:
  /// Maps and populates the memory. Throws `failure`.
  explicit remappable_memory(std::size_t bytes);
  remappable_memory(remappable_memory&& other) noexcept
      : first_(std::exchange(other.first_, nullptr)), bytes_(other.bytes_) {}
  remappable_memory& operator=(const remappable_memory&) = delete;
  ~remappable_memory();

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {static_cast<std::byte*>(first_), bytes_}; }

  /// Maps new pages at the same addresses. Throws `failure`.
  void remap();

 private:
  void* first_;
  std::size_t bytes_;
};

}  // namespace tool
