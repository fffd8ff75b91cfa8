// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory of whole pages, by mmap alone: no cache, whose monitors would tell all others too, has a part in it.
#pragma once

#include <cstddef>
#include <span>

namespace tool {

class rma_memory {
 public:
  /// Populated. Throws `failure`.
  explicit rma_memory(std::size_t bytes);
  rma_memory(const rma_memory&) = delete;
  rma_memory& operator=(const rma_memory&) = delete;
  ~rma_memory();

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {static_cast<std::byte*>(first_), bytes_}; }

  /// Puts new pages there, at the same addresses. Throws `failure`.
  void remap();

 private:
  void* first_;
  std::size_t bytes_;
};

}  // namespace tool
