// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The compiled parts of batches and pipelines. Not for users; it may change in any release.
#pragma once

#include <pinfold/detail/engine.hpp>
#include <pinfold/detail/pages.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace pinfold::detail {

/// How large a piece may be, once it is rounded out to the registrar's granularity (1 where nothing is rounded).
struct piece_limits {
  std::size_t max_bytes = SIZE_MAX;
  std::size_t granularity = 1;

  [[nodiscard]] bool fits(const range& piece) const noexcept {
    return aligned_out(piece, granularity).size() <= max_bytes;
  }
};

/// The pieces of a range, in order: none above `each` bytes, nor above the limits; they meet at multiples of the
/// granularity where they are long enough, so that no two share a page (R25). Requires that no limit is 0.
[[nodiscard]] PINFOLD_EXPORT std::vector<range> cut(const range& whole, std::size_t each, const piece_limits& limits);

/// Ranges without duplicates, and where each of the asked ones went.
struct batch_plan {
  std::vector<range> merged;          ///< by address
  std::vector<std::uint32_t> member;  ///< for each asked range, which merged one covers it
};

/// Merges what overlaps, and what touches inside one mapping, as long as nothing grows above the limits (R26).
[[nodiscard]] PINFOLD_EXPORT batch_plan merge_ranges(std::span<const range> asked, const piece_limits& limits);

/// Called on the thread that called, with how many of how many are done.
using batch_progress = std::function<void(std::size_t done, std::size_t total)>;

/// Acquires all or nothing. What is live already the caller's thread hits, without the engine's mutex; the rest is
/// acquired on at most `workers` threads, the caller's among them. Each takes groups of `together` requests, from 1 to
/// `most_in_group`: 1 where a driver opens them one by one, so that no worker is left without.
[[nodiscard]] PINFOLD_EXPORT result<std::vector<grant>> acquire_all(engine* on, std::span<const request> what,
                                                                    std::size_t together, unsigned workers,
                                                                    const batch_progress& progress);

/// Acquires requests in order and ahead of the reader. Not thread-safe; its workers are its own business.
class PINFOLD_EXPORT pipeline {
 public:
  pipeline(engine* on, std::vector<request> what, unsigned depth, unsigned workers);
  pipeline(pipeline&&) noexcept;
  pipeline& operator=(pipeline&&) noexcept;
  ~pipeline();

  [[nodiscard]] std::size_t size() const noexcept;

  /// Waits for the next one. `closed` after the last, and after the first that failed: behind it the order of what was
  /// registered has gaps.
  [[nodiscard]] result<grant> next() noexcept;

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace pinfold::detail
