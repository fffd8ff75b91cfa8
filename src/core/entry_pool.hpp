// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory for entries: taken in chunks, reused, and given back only with the pool, so that a racing reader may look at
/// a dead entry but never at freed memory.
#pragma once

#include "core/entry.hpp"
#include "core/record_page.hpp"

#include <atomic>
#include <cstddef>
#include <memory>

namespace pinfold::core {

/// Not thread-safe: guarded by the engine's mutex, except `make_chunk`, which allocates and is called without it, and
/// `for_each_entry`, which any thread may call as long as the pool lives.
class entry_pool {
 public:
  /// Free entries for the records of one page, not yet part of a pool.
  struct chunk {
    std::unique_ptr<entry[]> entries;
    record_page* page = nullptr;

    chunk() = default;
    chunk(chunk&& other) noexcept : entries(std::move(other.entries)), page(std::exchange(other.page, nullptr)) {}
    chunk& operator=(chunk&&) = delete;
    ~chunk() {
      if (page != nullptr) give_back(page);
    }
    explicit operator bool() const noexcept { return page != nullptr && entries != nullptr; }
  };

  /// For the engine behind `owner`.
  explicit entry_pool(gate& owner) noexcept : owner_(owner) {}
  ~entry_pool();
  entry_pool(const entry_pool&) = delete;
  entry_pool& operator=(const entry_pool&) = delete;

  [[nodiscard]] bool empty() const noexcept { return free_ == nullptr; }

  /// New entries for a pool of such records, false inside when there is no memory.
  [[nodiscard]] static chunk make_chunk(std::size_t record_bytes) noexcept;

  void adopt(chunk made) noexcept;

  /// A free entry with its fields as new; requires that the pool is not empty. Its state is still `free`, and its
  /// record may be pinned for a moment by a hit that has come too late.
  [[nodiscard]] entry* take() noexcept;

  /// Takes back an entry that is `free`.
  void put(entry* done) noexcept;

  /// Calls `each(entry&)` for all entries, used or not.
  template <class F>
  void for_each_entry(F&& each) const {
    for (record_page* page = pages_.load(std::memory_order_acquire); page != nullptr; page = page->next)
      for (std::size_t i = 0; i < page->capacity(); ++i) each(page->entries[i]);
  }

  /// The same with `each(record*)`.
  template <class F>
  void for_each_record(F&& each) const {
    for_each_entry([&](entry& one) { each(one.hot); });
  }

 private:
  gate& owner_;
  entry* free_ = nullptr;
  std::atomic<record_page*> pages_{nullptr};
};

}  // namespace pinfold::core
