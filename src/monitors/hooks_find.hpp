// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Where the functions are that are to be hooked: libc's own, whoever else has one of that name, and those that the
/// dynamic linker keeps for itself and has no symbols for.
#pragma once

#include "monitors/hooks_events.hpp"
#include "monitors/hooks_image.hpp"
#include "monitors/hooks_x86_64.hpp"

#include <array>

namespace pinfold::monitors {

struct found_function {
  std::uintptr_t entry = 0;  ///< 0: there is none, and need not be
  x86_64::text segment;      ///< the code that it is part of
};

using found_functions = std::array<found_function, events::functions>;

inline constexpr std::size_t copies_of_libc = 3;

/// The library that this is part of is not unloaded any more. Calls the dynamic linker.
[[nodiscard]] result<void> stay_loaded() noexcept;

/// Returns the libc that this library calls; empty if that is no shared glibc. Calls the dynamic linker.
[[nodiscard]] loaded_image libc_here() noexcept;

/// Returns the functions that a copy of libc exports.
[[nodiscard]] result<found_functions> find_functions_of(const loaded_image& libc) noexcept;

/// Returns those of `libc_here()` and the dynamic linker's own. Calls the dynamic linker, which takes its lock.
/// `unsupported` without glibc, or when one is missing that has to be there.
[[nodiscard]] result<found_functions> find_functions() noexcept;

}  // namespace pinfold::monitors
