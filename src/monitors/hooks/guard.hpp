// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Checks that the code that leads to our hooks is unchanged: compares a few words of it, and records calls that make
/// it writable. For hooks: allocates nothing, takes no lock, makes no system call.
#pragma once

#include <pinfold/range.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

namespace pinfold::monitors::guard {

/// The aligned words on one path from a function's entry to our hook, and their expected values. Null: none.
struct words {
  static constexpr std::size_t most = 6;
  std::array<const std::uint64_t*, most> at{};
  std::array<std::uint64_t, most> expected{};
};

inline constexpr std::size_t paths = 48;

/// Compares path `number` from now on. The caller holds the installer's lock.
void keep(std::size_t number, const words& path) noexcept;
/// Stops all comparisons.
void forget_all() noexcept;

/// Returns true while every word is unchanged. For any thread and any signal handler.
[[nodiscard]] bool intact() noexcept;

/// Returns true if the pages may contain code that leads to our hooks, now or earlier.
[[nodiscard]] bool may_touch(const range& pages) noexcept;

/// Records a change of the pages' protection. Returns true if it makes any of the words writable: their values then
/// prove nothing until the words are read-only again.
bool protect(const range& pages, bool writable) noexcept;
/// Returns true while another library has made any of the words writable through libc's mprotect.
[[nodiscard]] bool writable() noexcept;

}  // namespace pinfold::monitors::guard
