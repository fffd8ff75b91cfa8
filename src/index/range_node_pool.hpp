// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory for the nodes of a range index: taken in chunks outside of the lock, reused, given back with the pool.
#pragma once

#include "index/range_node.hpp"

#include <cstddef>
#include <utility>

namespace pinfold::index {

/// A pool of nodes. Not thread-safe: guarded as its index is, except `make_chunk`, which allocates and may be called on
/// any thread.
class range_node_pool {
 public:
  /// Memory for nodes, not yet part of a pool.
  class chunk {
   public:
    chunk(chunk&& other) noexcept : units_(std::exchange(other.units_, nullptr)), count_(other.count_) {}
    chunk& operator=(chunk&&) = delete;
    ~chunk();
    explicit operator bool() const noexcept { return units_ != nullptr; }

   private:
    friend class range_node_pool;
    chunk(void* units, std::size_t count) noexcept : units_(units), count_(count) {}
    void* units_;
    std::size_t count_;
  };

  range_node_pool() noexcept = default;
  ~range_node_pool();
  range_node_pool(const range_node_pool&) = delete;
  range_node_pool& operator=(const range_node_pool&) = delete;

  /// Allocates a chunk of `bytes` bytes (`next_chunk`). The chunk is false if there is no memory.
  [[nodiscard]] static chunk make_chunk(std::size_t bytes) noexcept;

  /// Returns how large the next chunk should be: small at first.
  [[nodiscard]] std::size_t next_chunk() const noexcept;

  void adopt(chunk made) noexcept;

  /// Returns whether there is room for that many leaves and inner nodes.
  [[nodiscard]] bool has(std::size_t leaves, std::size_t inners) const noexcept {
    if (leaves + 2 * inners <= fresh_units_) [[likely]]
      return true;
    const auto inners_left = inners_.size > inners ? inners_.size - inners : 0;
    const auto inners_lack = inners > inners_.size ? inners - inners_.size : 0;
    if (fresh_units_ < 2 * inners_lack) return false;
    return leaves <= leaves_.size + 2 * inners_left + fresh_units_ - 2 * inners_lack;
  }

  // Require `has`.
  [[nodiscard]] range_leaf* take_leaf(peer_id of) noexcept;
  [[nodiscard]] range_inner* take_inner(void* first, std::uint64_t max_end) noexcept;

  void put(range_leaf* done) noexcept;
  void put(range_inner* done) noexcept;

  /// Returns the size of all chunks.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

  /// Returns the size of all nodes in use.
  [[nodiscard]] std::size_t bytes_out() const noexcept { return bytes_out_; }

 private:
  // A leaf takes one unit, an inner node two. Units that were never used are contiguous.
  static constexpr std::size_t unit = sizeof(range_leaf);
  struct free_node {
    free_node* next;
  };
  struct head {
    head* next;
  };
  struct free_list {
    free_node* first = nullptr;
    std::size_t size = 0;

    void push(void* node) noexcept;
    [[nodiscard]] void* pop() noexcept;
  };

  [[nodiscard]] void* take_fresh(std::size_t units) noexcept;

  free_list leaves_;
  free_list inners_;
  std::byte* fresh_ = nullptr;
  std::size_t fresh_units_ = 0;
  head* chunks_ = nullptr;  // the first unit of each
  std::size_t bytes_ = 0;
  std::size_t bytes_out_ = 0;
};

}  // namespace pinfold::index
