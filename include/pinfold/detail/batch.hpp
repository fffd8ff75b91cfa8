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

/// Limits of the size of a piece after it is rounded out to the registrar's granularity (1: not rounded).
struct piece_limits {
  std::size_t max_bytes = SIZE_MAX;
  std::size_t granularity = 1;

  [[nodiscard]] bool fits(const range& piece) const noexcept {
    return aligned_out(piece, granularity).size() <= max_bytes;
  }
};

/// How many pieces one call makes of a range: the list of them needs some 160 bytes each.
inline constexpr std::size_t most_pieces = std::size_t{1} << 22U;

/// How many threads one call starts at most: more gain nothing at any driver.
inline constexpr unsigned most_workers = 256;

/// Returns `too_large` if the range has more pieces of that size than one call makes. Requires that no limit is 0.
[[nodiscard]] inline result<void> check_pieces(const range& whole, std::size_t each,
                                               const piece_limits& limits) noexcept {
  const std::size_t least = each < limits.max_bytes ? each : limits.max_bytes;
  if (whole.size() / least >= most_pieces) return fail(errc::too_large, "the range has too many pieces");
  return {};
}

/// Cuts a range into pieces, in order, of at most `each` bytes and within the limits. Pieces that are long enough meet
/// at multiples of the granularity, so that no two share a page (R25). Requires that no limit is 0.
[[nodiscard]] PINFOLD_EXPORT std::vector<range> cut(const range& whole, std::size_t each, const piece_limits& limits);

/// Merged ranges, and the merged range of each requested one.
struct batch_plan {
  std::vector<range> merged;          ///< by address
  std::vector<std::uint32_t> member;  ///< for each requested range, the index of the merged range that covers it
};

/// Merges ranges that overlap, and ranges that touch inside one mapping, as long as the result stays within the limits
/// (R26).
[[nodiscard]] PINFOLD_EXPORT batch_plan merge_ranges(std::span<const range> asked, const piece_limits& limits);

/// Called on the caller's thread, with the number of ranges that are done and the number of all.
using batch_progress = std::function<void(std::size_t done, std::size_t total)>;

/// Acquires all ranges or none, each with a request like `like`. Returns the grants in the order of the ranges, of
/// which there must be less than 2^32. The caller's thread first hits the entries that are live, without the shard's
/// mutex. At most `workers` threads, the caller's included, acquire the rest. Each thread takes groups of at least
/// `together` ranges, from 1 to `most_in_group`; 1 if the driver opens one by one, so that every worker gets a share. A
/// worker doubles its groups while they take a few microseconds.
[[nodiscard]] PINFOLD_EXPORT result<std::vector<grant>> acquire_all(engine* on, const request& like,
                                                                    std::span<const range> what, std::size_t together,
                                                                    unsigned workers, const batch_progress& progress);

/// A pipeline that acquires requests in order and ahead of the reader. Not thread-safe: one thread at a time calls its
/// members. It runs workers of its own.
class PINFOLD_EXPORT pipeline {
 public:
  pipeline(engine* on, std::vector<request> what, unsigned depth, unsigned workers);
  pipeline(pipeline&&) noexcept;
  pipeline& operator=(pipeline&&) noexcept;
  ~pipeline();

  [[nodiscard]] std::size_t size() const noexcept;

  /// Waits for the next grant. Returns `closed` after the last request, and after the first that failed: the registered
  /// pieces after it have gaps.
  [[nodiscard]] result<grant> next() noexcept;

 private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace pinfold::detail
