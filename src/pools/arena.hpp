// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The implementation of `sealed_arena`.
#pragma once

#include "pools/pages.hpp"

#include <pinfold/pools/sealed_arena.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

namespace pinfold::pools {

/// All sealed mappings of this process. Thread-safe.
class arena {
 public:
  /// Returns null when there is no memory for it.
  [[nodiscard]] static arena* of_this_process() noexcept;

  /// Returns a mapping of that size, rounded up to its pages: an idle one, or a new one.
  [[nodiscard]] result<mapping> take(std::size_t bytes, page_kind wanted) noexcept;

  void give_back(const mapping& unused) noexcept;

  void set_limit(std::size_t bytes) noexcept;
  [[nodiscard]] sealed_arena::usage_info usage() noexcept;

 private:
  struct piece {
    mapping made;
    bool idle;
  };

  arena(std::uint64_t process, arena* parents) noexcept;
  [[nodiscard]] piece* idle_piece(std::size_t bytes, page_kind wanted) noexcept;

  std::atomic<std::size_t> limit_;  // a child starts with its parent's limit
  const std::uint64_t process_;
  [[maybe_unused]] arena* const parents_;  // keeps it reachable
  std::mutex mutex_;                       // guards all below
  std::vector<piece> pieces_;
  std::size_t bytes_ = 0;
  std::size_t reserved_ = 0;  // places in `pieces_` promised to mappings in progress
};

}  // namespace pinfold::pools
