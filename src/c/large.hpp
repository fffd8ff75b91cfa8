// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Large leases of the C interface.
#pragma once

#include "c/cache.hpp"

#include <pinfold/background.h>
#include <pinfold/detail/background.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

/// Leases on pieces, by address.
struct pinfold_large {
  /// A lease that C may also access.
  struct piece_lease : pinfold::lease_base {
    explicit piece_lease(pinfold::lease_base&& taken) noexcept : lease_base(std::move(taken)) {}
    [[nodiscard]] pinfold_lease as_c() const noexcept { return {held(), address()}; }
  };
  struct piece {
    pinfold::range where;
    piece_lease lease;
  };

  std::vector<piece> pieces;

  /// Makes an empty large lease with room for `count` pieces. Throws `std::bad_alloc`.
  [[nodiscard]] static std::unique_ptr<pinfold_large> with_room(std::size_t count);
  /// Fills a large lease that has the room.
  void take(std::vector<pinfold::detail::held_part> parts) noexcept;
  /// Returns the number of the first piece that ends behind the address.
  [[nodiscard]] std::size_t first_behind(std::uintptr_t address) const noexcept;
};

namespace pinfold::c {

inline constexpr std::size_t usual_piece = std::size_t{1} << 30U;
inline constexpr std::size_t usual_first_piece = std::size_t{16} << 20U;

/// The options that large leases and background registration share.
struct pieces_asked {
  std::size_t piece_bytes;
  std::uint32_t workers;
  int file;
  void* argument;
  background_order order;
  void (*progress)(void* self, std::uint64_t done, std::uint64_t total);
  void* self;
  detail::pace_options pace{};
};

/// Returns the engine's plan. Throws `std::bad_alloc`.
[[nodiscard]] result<detail::background_plan> planned(const pinfold_cache* cache, const pinfold_range* ranges,
                                                      std::size_t count, std::uint32_t access, const pieces_asked& how);

}  // namespace pinfold::c
