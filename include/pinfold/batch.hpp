// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Many ranges at once (R26), and one long range piece by piece (R25).
#pragma once

#include <pinfold/detail/batch.hpp>
#include <pinfold/lease.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace pinfold {

struct batch_options {
  /// Threads that register, the caller's among them. They are started for each batch in which something has to be
  /// registered: for few ranges, one is faster.
  unsigned workers = 4;
  /// Told how many of how many (merged) ranges are done, on the caller's thread: after each that it registered itself,
  /// or after each group where the registrar takes groups, and at last when all of them are. Those that were registered
  /// already count as done from the start. What it throws ends the batch with `invalid_argument`.
  std::function<void(std::size_t done, std::size_t total)> progress{};
};

/// Leases on many ranges. Ranges that overlapped, or touched inside one mapping, share a registration.
template <registrar R>
class [[nodiscard]] batch_lease {
 public:
  /// Holds nothing.
  batch_lease() = default;

  /// How many ranges were asked for.
  [[nodiscard]] std::size_t size() const noexcept { return member_.size(); }

  /// How many registrations serve them.
  [[nodiscard]] std::size_t registrations() const noexcept { return leases_.size(); }

  /// The lease that covers the range with this number, in the order of asking; an empty one for any other number.
  [[nodiscard]] const lease<R>& operator[](std::size_t number) const noexcept {
    return number < member_.size() ? leases_[member_[number]] : none_;
  }

 private:
  inline static const lease<R> none_{};
  friend class cache<R>;
  batch_lease(std::vector<lease<R>> leases, std::vector<std::uint32_t> member) noexcept
      : leases_(std::move(leases)), member_(std::move(member)) {}

  std::vector<lease<R>> leases_;
  std::vector<std::uint32_t> member_;
};

struct chunk_options {
  std::size_t chunk_bytes = std::size_t{2} << 20U;  ///< bytes of a piece, at most; pieces end with whole pages
  unsigned depth = 4;                               ///< pieces registered ahead of the reader
  unsigned workers = 1;                             ///< threads that register
};

/// Leases on the pieces of one range, in order, while later pieces are still being registered. Not thread-safe. Must
/// not outlive its cache. A stream that was moved from is done.
template <registrar R>
class [[nodiscard]] chunk_stream {
 public:
  struct chunk {
    range where;
    lease<R> held;
  };

  /// How many pieces there are in all.
  [[nodiscard]] std::size_t size() const noexcept { return ranges_.size(); }

  /// Whether `next` has no more to give: every piece has been read, or one failed.
  [[nodiscard]] bool done() const noexcept { return read_ >= ranges_.size(); }

  /// Waits for the next piece. The first piece that could not be registered gives its error and ends the stream: from
  /// then on, and when all pieces have been read, the answer is `closed`. Leases that were read stay valid; those on
  /// pieces behind the failed one are never handed out, and go with the stream.
  [[nodiscard]] result<chunk> next() noexcept {
    if (done()) return fail(errc::closed, "there are no more chunks");
    auto got = pipeline_.next();
    if (!got) {
      read_ = ranges_.size();
      return tl::unexpected(got.error());
    }
    return chunk{ranges_[read_++], lease<R>(*got)};
  }

 private:
  friend class cache<R>;
  chunk_stream(std::vector<range> ranges, detail::pipeline running) noexcept
      : ranges_(std::move(ranges)), pipeline_(std::move(running)) {}

  std::vector<range> ranges_;
  detail::pipeline pipeline_;
  std::size_t read_ = 0;
};

}  // namespace pinfold
