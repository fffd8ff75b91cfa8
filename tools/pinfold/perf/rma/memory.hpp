// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory of whole pages, from mmap alone. No cache is involved, since its monitors would tell all other caches too.
#pragma once

#include <cstddef>
#include <span>

namespace tool {

class rma_memory {
 public:
  /// Maps and populates the memory. Throws `failure`.
  explicit rma_memory(std::size_t bytes);
  rma_memory(const rma_memory&) = delete;
  rma_memory& operator=(const rma_memory&) = delete;
  ~rma_memory();

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {static_cast<std::byte*>(first_), bytes_}; }

  /// Maps new pages at the same addresses. Throws `failure`.
  void remap();

 private:
  void* first_;
  std::size_t bytes_;
};

}  // namespace tool
