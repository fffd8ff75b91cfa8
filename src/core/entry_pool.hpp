// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory for entries: taken in chunks, reused, and given back only with the pool, so that a racing reader may look at
/// a dead entry but never at freed memory.
#pragma once

#include "core/entry.hpp"

#include <cstddef>
#include <memory>

namespace pinfold::core {

/// Not thread-safe: guarded by the engine's mutex, except `make_chunk`, which allocates and is called without it.
class entry_pool {
 public:
  static constexpr std::size_t entries_per_chunk = 64;

  /// A block of free entries, not yet part of a pool.
  struct chunk {
    std::unique_ptr<std::byte[]> memory;
    chunk* next = nullptr;
  };

  explicit entry_pool(std::size_t token_bytes) noexcept : stride_(stride(token_bytes)) {}
  ~entry_pool();
  entry_pool(const entry_pool&) = delete;
  entry_pool& operator=(const entry_pool&) = delete;

  [[nodiscard]] bool empty() const noexcept { return free_ == nullptr; }

  /// A new block of entries that belong to `owner`, null when there is no memory.
  [[nodiscard]] static std::unique_ptr<chunk> make_chunk(engine* owner, std::size_t token_bytes) noexcept;

  void adopt(std::unique_ptr<chunk> made) noexcept;

  /// A free entry with its fields as new; requires that the pool is not empty. Its state is still `free`.
  [[nodiscard]] entry* take() noexcept;

  /// Takes back an entry that is `free`.
  void put(entry* done) noexcept;

 private:
  [[nodiscard]] static std::size_t stride(std::size_t token_bytes) noexcept;
  [[nodiscard]] static entry* at(const chunk& block, std::size_t number, std::size_t stride) noexcept;

  const std::size_t stride_;
  entry* free_ = nullptr;
  chunk* chunks_ = nullptr;
};

}  // namespace pinfold::core
