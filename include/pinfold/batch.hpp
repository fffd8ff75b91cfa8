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

/// Options of one batch.
struct batch_options {
  /// Threads that register, the caller's included. The cache starts them for each batch that has something to register;
  /// for few ranges, one thread is faster. At most 256.
  unsigned workers = 4;
  /// Called with the number of merged ranges that are done, and the number of all merged ranges: on the calling thread,
  /// after each range or group that it registered, and once at the end. Ranges that workers registered are reported
  /// with the next call; ranges that were already registered count as done from the start. If the function throws, the
  /// batch ends with `invalid_argument`.
  std::function<void(std::size_t done, std::size_t total)> progress{};
};

/// Leases on many ranges. Ranges that overlap, or that touch inside one mapping, share a registration.
template <registrar R>
class [[nodiscard]] batch_lease {
 public:
  /// Holds nothing.
  batch_lease() = default;

  /// Returns the number of requested ranges.
  [[nodiscard]] std::size_t size() const noexcept { return member_.size(); }

  /// Returns the number of registrations that serve those ranges.
  [[nodiscard]] std::size_t registrations() const noexcept { return leases_.size(); }

  /// Returns the lease that covers range `number`, in the order of the request; an empty lease if there is no such
  /// range.
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

/// Options of one stream of chunks.
struct chunk_options {
  std::size_t chunk_bytes = std::size_t{2} << 20U;  ///< largest piece, in bytes; pieces end at page boundaries
  unsigned depth = 4;                               ///< pieces registered ahead of the reader
  unsigned workers = 1;                             ///< threads that register, at most 256
};

/// A stream of leases on the pieces of one range, in order, while later pieces are still being registered. Not
/// thread-safe. Must not outlive its cache. A moved-from stream is done.
template <registrar R>
class [[nodiscard]] chunk_stream {
 public:
  /// One piece.
  struct chunk {
    range where;    ///< the piece
    lease<R> held;  ///< its lease
  };

  /// Returns the number of pieces in all.
  [[nodiscard]] std::size_t size() const noexcept { return ranges_.size(); }

  /// Returns whether `next` has no more pieces: every piece has been read, or one failed.
  [[nodiscard]] bool done() const noexcept { return read_ >= ranges_.size(); }

  /// Waits for the next piece. The first piece that could not be registered returns its error and ends the stream.
  /// After that, and after the last piece, the error is `closed`. Leases that were already read stay valid. The stream
  /// never hands out leases on pieces behind the failed one; it releases them in its destructor.
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
