// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// One lease on memory that consists of several segments.
#pragma once

#include <pinfold/import_lease.hpp>
#include <pinfold/range.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace pinfold {

namespace detail {
struct segments_access;
}  // namespace detail

/// A piece of a segmented lease: the part of the request that lies in one segment.
/// `Pointer` is a pointer to `void`, or to `const void` for memory of this process.
template <class Pointer>
struct segment_piece {
  range where;             ///< the piece, in the addresses of the process that has the memory
  Pointer data = nullptr;  ///< where it is in this process; null if the cache was destroyed
};

/// Leases on the segments under a range of memory: one for each segment, all or nothing. While it lives, all pieces
/// stay mapped or registered. `Lease` is the lease of one segment, whose rules apply. Move-only; threads may call const
/// members at the same time. Use it as `segmented_lease` or `segmented_registration`.
template <class Lease>
class [[nodiscard]] lease_of_segments {
 public:
  using pointer = decltype(std::declval<const Lease&>().data());  ///< the type of a lease's `data()`
  using piece_type = segment_piece<pointer>;                      ///< what `piece` and `at` return

  /// Holds nothing.
  lease_of_segments() = default;
  lease_of_segments(lease_of_segments&& other) noexcept : parts_(std::exchange(other.parts_, {})) {}
  lease_of_segments& operator=(lease_of_segments&& other) noexcept {
    parts_ = std::exchange(other.parts_, {});
    return *this;
  }
  ~lease_of_segments() = default;

  /// Returns whether the lease holds memory.
  explicit operator bool() const noexcept { return !parts_.empty(); }

  /// Returns the leased range, in the addresses of the process that has the memory; an empty range if the lease is
  /// empty.
  [[nodiscard]] range where() const noexcept {
    return parts_.empty() ? range{} : range{parts_.front().where.begin, parts_.back().where.end};
  }

  /// Returns the number of pieces.
  [[nodiscard]] std::size_t pieces() const noexcept { return parts_.size(); }

  /// Returns piece `number`, by address from 0; an empty piece if there is no such piece.
  [[nodiscard]] piece_type piece(std::size_t number) const noexcept {
    if (number >= parts_.size()) return {};
    return {parts_[number].where, parts_[number].held.data()};
  }

  /// Returns the lease of piece `number`; an empty lease if there is no such piece.
  [[nodiscard]] const Lease& lease_of(std::size_t number) const noexcept {
    return number < parts_.size() ? parts_[number].held : none_;
  }

  /// Returns the rest of the piece from `address` on, in the same addresses; an empty piece if the lease does not cover
  /// it. Takes time in the logarithm of the number of pieces.
  [[nodiscard]] piece_type at(std::uintptr_t address) const noexcept {
    const auto found = std::upper_bound(parts_.begin(), parts_.end(), address,
                                        [](std::uintptr_t wanted, const part& one) { return wanted < one.where.end; });
    if (found == parts_.end() || address < found->where.begin) return {};
    return {{address, found->where.end}, moved(found->held.data(), address - found->where.begin)};
  }

  /// Returns where the range is in this process, if its pieces are adjacent there, as in a window of the importer; else
  /// null.
  [[nodiscard]] pointer data() const noexcept {
    if (parts_.empty()) return nullptr;
    const pointer first = parts_.front().held.data();
    if (first == nullptr) return nullptr;
    const auto base = parts_.front().where.begin;
    const bool adjacent = std::all_of(parts_.begin(), parts_.end(), [&](const part& one) {
      return one.held.data() == moved(first, one.where.begin - base);
    });
    return adjacent ? first : nullptr;
  }

  /// Returns whether the cache has noticed that a segment was replaced or invalidated. All pieces stay mapped.
  [[nodiscard]] bool stale() const noexcept {
    return std::any_of(parts_.begin(), parts_.end(), [](const part& one) { return one.held.stale(); });
  }

  /// Releases all pieces. Returns the error of the first close that fails, as the lease's `release` does.
  result<void> release() noexcept {
    result<void> first;
    for (auto& one : parts_)
      if (auto closed = one.held.release(); !closed && first) first = closed;
    parts_.clear();
    return first;
  }

 private:
  friend struct detail::segments_access;
  struct part {
    range where;
    Lease held;
  };
  inline static const Lease none_{};

  static pointer moved(pointer from, std::size_t bytes) noexcept {
    using byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<pointer>>, const std::byte, std::byte>;
    return from == nullptr ? nullptr : static_cast<byte*>(from) + bytes;
  }

  std::vector<part> parts_;
};

namespace detail {

/// Fills leases of segments. Not for users; it may change in any release.
struct segments_access {
  /// Makes room for that many pieces. Throws `std::bad_alloc`.
  template <class Lease>
  static void reserve(lease_of_segments<Lease>& all, std::size_t pieces) {
    all.parts_.reserve(pieces);
  }
  /// Adds a piece behind the last one; there is room for it.
  template <class Lease>
  static void add(lease_of_segments<Lease>& all, const range& where, Lease held) noexcept {
    all.parts_.push_back({where, std::move(held)});
  }
};

}  // namespace detail

/// Leases on the segments under a range of a peer's memory.
template <importer I>
using segmented_lease = lease_of_segments<import_lease<I>>;

}  // namespace pinfold
