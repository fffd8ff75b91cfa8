// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Finds the functions to hook: libc's own, even if other libraries have functions of the same names, and the dynamic
/// linker's private ones, which have no symbols.
#pragma once

#include "monitors/hooks/events.hpp"
#include "monitors/hooks/image.hpp"
#include "monitors/hooks/x86_64.hpp"

#include <array>

namespace pinfold::monitors {

struct found_function {
  std::uintptr_t entry = 0;  ///< 0: not found, and not needed
  x86_64::text segment;      ///< the code that contains it
};

using found_functions = std::array<found_function, events::functions>;

inline constexpr std::size_t copies_of_libc = 3;

/// Returns the libc that this library calls; empty if that is not a shared glibc. Calls the dynamic linker.
[[nodiscard]] loaded_image libc_here() noexcept;

/// Returns the functions that a copy of libc exports.
[[nodiscard]] result<found_functions> find_functions_of(const loaded_image& libc) noexcept;

/// Returns the functions of `libc_here()` and the dynamic linker's own. Calls the dynamic linker, which takes its lock.
/// `unsupported` without glibc, or if a required function is missing.
[[nodiscard]] result<found_functions> find_functions() noexcept;

}  // namespace pinfold::monitors
