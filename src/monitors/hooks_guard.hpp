// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Whether the code that leads to our hooks is still as it was: a few words of it are compared, and calls that make it
/// writable are noted. For hooks: allocates nothing, takes no lock, makes no system call.
#pragma once

#include <pinfold/range.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace pinfold::monitors::guard {

/// The aligned words of one path from a function's entry to our hook, and what they hold. Null: none.
struct words {
  static constexpr std::size_t most = 6;
  std::array<const std::uint64_t*, most> at{};
  std::array<std::uint64_t, most> expected{};
};

inline constexpr std::size_t paths = 48;

/// From now on path `number` is compared. With the installer's lock held.
void keep(std::size_t number, const words& path) noexcept;
/// Nothing is compared any more.
void forget_all() noexcept;

/// Returns true as long as every word is as it was. Any thread, any signal handler.
[[nodiscard]] bool intact() noexcept;

/// Notes that pages get another protection. Returns true if that makes any of the words writable: then what they hold
/// cannot be relied on until they are not.
bool protect(const range& pages, bool writable) noexcept;
/// Returns true while another library has any of the words writable, as far as libc's mprotect was called for it.
[[nodiscard]] bool writable() noexcept;

}  // namespace pinfold::monitors::guard
