// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory for entries: taken in chunks, reused, and given back only with the pool, so that a racing reader may read a
/// dead entry but never freed memory.
#pragma once

#include "index/entry.hpp"
#include "index/record_page.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <forward_list>
#include <utility>
#include <vector>

namespace pinfold::index {

/// A pool of entries. Not thread-safe: guarded by the shard's mutex, except `make_chunk`, which allocates and is called
/// without the mutex, and `for_each`, which any thread may call as long as the pool lives.
class entry_pool {
 public:
  /// Vectors whose elements never move.
  using times = std::forward_list<std::vector<std::uint32_t>>;

  /// A page of free entries with their records, not yet part of a pool.
  struct chunk {
    record_page* page;
    times used_at;  ///< of the page's records: one vector, or none

    explicit chunk(record_page* taken) noexcept : page(taken) {}
    chunk(chunk&& other) noexcept : page(std::exchange(other.page, nullptr)), used_at(std::move(other.used_at)) {}
    chunk& operator=(chunk&&) = delete;
    ~chunk() {
      if (page != nullptr) give_back(page);
    }
    explicit operator bool() const noexcept { return page != nullptr; }
  };

  /// Makes a pool for the engine behind `owner`, with records of imported or of local memory.
  entry_pool(control_block& owner, bool imported) noexcept : owner_(owner), imported_(imported) {}
  ~entry_pool();
  entry_pool(const entry_pool&) = delete;
  entry_pool& operator=(const entry_pool&) = delete;

  [[nodiscard]] bool empty() const noexcept { return free_ == nullptr && fresh_ == nullptr; }

  /// Allocates a page of free entries with records of `record_bytes` bytes, and with `with_times` a time for each
  /// (`entry::used_at`). Without memory, the page or the times are null.
  [[nodiscard]] static chunk make_chunk(std::size_t record_bytes, bool with_times = false) noexcept;

  void adopt(chunk made) noexcept;

  /// Returns a free entry with new fields. Requires that the pool is not empty. The entry's state is still `free`, and
  /// a late hit may pin its record for a moment.
  [[nodiscard]] entry* take() noexcept;

  /// Takes back an entry that is `free`.
  void put(entry* done) noexcept;

  /// Calls `each(record_page&, number)` for all records, in use or not.
  template <class F>
  void for_each(F&& each) const {
    for (record_page* page = pages_.load(std::memory_order_acquire); page != nullptr; page = page->next) {
      const auto made = page->made.load(std::memory_order_acquire);
      for (std::size_t i = 0; i < made; ++i) each(*page, i);
    }
  }

  /// Returns the pointer to the first page, for readers of the process's memory.
  [[nodiscard]] const std::atomic<record_page*>& pages() const noexcept { return pages_; }

 private:
  [[nodiscard]] entry* carve() noexcept;

  control_block& owner_;
  const bool imported_;
  entry* free_ = nullptr;
  record_page* fresh_ = nullptr;  // the newest page, while some of its entries were never taken
  std::uint32_t carved_ = 0;      // entries taken from that page
  std::atomic<record_page*> pages_{nullptr};
  times used_at_;  // of the pages
};

}  // namespace pinfold::index
