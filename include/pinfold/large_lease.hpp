// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// One lease on a range of any size, in pieces that the registrar can register (R65).
#pragma once

#include <pinfold/detail/background.hpp>
#include <pinfold/detail/or_error.hpp>
#include <pinfold/lease.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace pinfold {

template <registrar R>
class background_registration;

/// The default size of the pieces of large leases and of background registration, in bytes: small enough that no call
/// of a driver takes long, and keeps other threads and processes out of it.
inline constexpr std::size_t default_piece_bytes = std::size_t{1} << 30U;

/// Options of one large lease.
struct large_options {
  /// Largest piece, in bytes. The registrar's largest registration limits it further.
  std::size_t piece_bytes = default_piece_bytes;
  /// Threads that register, the caller's included. The cache starts them only if there is something to register.
  unsigned workers = 4;
  /// Called with the registered bytes and the bytes in all, whenever the former grow, on one of the registering threads
  /// at a time. Not called if every piece is a hit. If it throws, the request ends with `invalid_argument`.
  std::function<void(std::size_t done, std::size_t total)> progress{};
  /// The descriptor of the file that is mapped at the memory: `acquire_options::file`.
  int file = -1;
};

/// A piece of a large lease.
template <registrar R>
struct large_piece {
  range where;           ///< the piece
  const lease<R>& held;  ///< its lease, which the large lease owns
};

/// A part of registered memory, as a device needs it.
template <registrar R>
struct registered_part {
  void* address = nullptr;                          ///< its first byte
  std::size_t bytes = 0;                            ///< its length
  typename R::registration_type registration = {};  ///< the registration that covers it: keys, buffer index
};

/// One lease on memory of any size: leases on its pieces, which meet at boundaries of huge pages. While it lives, the
/// memory stays registered. Move-only; the rules of `lease` apply. Threads may call const members at the same time.
template <registrar R>
class [[nodiscard]] large_lease {
 public:
  /// Holds nothing.
  large_lease() = default;
  large_lease(large_lease&& other) noexcept
      : where_(std::exchange(other.where_, {})), pieces_(std::exchange(other.pieces_, {})) {}
  large_lease& operator=(large_lease&& other) noexcept {
    where_ = std::exchange(other.where_, {});
    pieces_ = std::exchange(other.pieces_, {});
    return *this;
  }
  ~large_lease() = default;

  /// Returns whether the lease holds memory.
  explicit operator bool() const noexcept { return !pieces_.empty(); }

  /// Returns the leased range; an empty range if the lease is empty. If the lease is on several ranges, returns the
  /// range from the first to the last.
  [[nodiscard]] range where() const noexcept { return where_; }

  /// Returns the number of leased bytes.
  [[nodiscard]] std::size_t bytes() const noexcept {
    std::size_t all = 0;
    for (const auto& one : pieces_) all += one.where.size();
    return all;
  }

  /// Returns the number of pieces.
  [[nodiscard]] std::size_t pieces() const noexcept { return pieces_.size(); }

  /// Returns piece `number`, by address from 0; an empty range with an empty lease if there is no such piece.
  [[nodiscard]] large_piece<R> piece(std::size_t number) const noexcept {
    if (number >= pieces_.size()) return {{}, none_};
    return {pieces_[number].where, pieces_[number].held};
  }

  /// Returns the piece that contains the address; an empty range with an empty lease if none does. Takes time in the
  /// logarithm of the number of pieces.
  [[nodiscard]] large_piece<R> at(const void* address) const noexcept {
    const auto wanted = reinterpret_cast<std::uintptr_t>(address);
    const auto number = first_behind(wanted);
    if (number == pieces_.size() || wanted < pieces_[number].where.begin) return {{}, none_};
    return piece(number);
  }

  /// Returns the parts of registrations that make up the `bytes` bytes at `address`, by address. They are valid while
  /// this lease is. Errors: `invalid_range` if the lease does not cover all of it, `closed` if the cache was destroyed,
  /// `out_of_resources`.
  [[nodiscard]] result<std::vector<registered_part<R>>> list(const void* address, std::size_t bytes) const noexcept {
    return detail::or_error("no memory for the list of pieces", "no memory for the list of pieces",
                            [&] { return parts_of(address, bytes); });
  }

  /// Returns whether a piece is stale: whether the cache has noticed that memory was replaced or invalidated. The
  /// registrations are still open.
  [[nodiscard]] bool stale() const noexcept {
    return std::any_of(pieces_.begin(), pieces_.end(), [](const auto& one) { return one.held.stale(); });
  }

  /// Releases all pieces. Returns the error of the first close that the driver refuses, as `lease::release` does.
  result<void> release() noexcept {
    result<void> first;
    for (auto& one : pieces_)
      if (auto closed = one.held.release(); !closed && first) first = closed;
    *this = large_lease();
    return first;
  }

 private:
  inline static const lease<R> none_{};
  friend class cache<R>;
  friend class background_registration<R>;

  struct own_piece {
    range where;
    lease<R> held;
  };

  // Throws std::bad_alloc, unless `room` has been reserved for all parts.
  explicit large_lease(std::vector<detail::held_part> parts, std::vector<own_piece> room = {})
      : pieces_(std::move(room)) {
    pieces_.reserve(parts.size());
    for (auto& one : parts) pieces_.push_back({one.where, lease<R>(std::move(one.held))});
    if (!pieces_.empty()) where_ = {pieces_.front().where.begin, pieces_.back().where.end};
  }

  // The first piece that ends behind the address.
  [[nodiscard]] std::size_t first_behind(std::uintptr_t address) const noexcept {
    const auto found =
        std::upper_bound(pieces_.begin(), pieces_.end(), address,
                         [](std::uintptr_t wanted, const own_piece& one) { return wanted < one.where.end; });
    return static_cast<std::size_t>(found - pieces_.begin());
  }

  // Throws std::bad_alloc.
  [[nodiscard]] result<std::vector<registered_part<R>>> parts_of(const void* address, std::size_t bytes) const {
    const auto wanted = range::of(reinterpret_cast<std::uintptr_t>(address), bytes);
    if (!wanted) return tl::unexpected(wanted.error());
    std::vector<registered_part<R>> parts;
    auto from = wanted->begin;
    for (auto number = first_behind(from); from < wanted->end; ++number) {
      if (number == pieces_.size() || from < pieces_[number].where.begin)
        return fail(errc::invalid_range, "the lease does not cover all of the range");
      const auto& [where, held] = pieces_[number];
      if (held.closed()) return fail(errc::closed, "the cache of the lease was destroyed");
      const auto end = std::min(wanted->end, where.end);
      parts.push_back({reinterpret_cast<void*>(from), end - from, held.registration()});
      from = end;
    }
    return parts;
  }

  range where_;
  std::vector<own_piece> pieces_;  // by address
};

}  // namespace pinfold
