// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Finds copies of libc beside the program's own: each namespace that dlmopen(3) makes has one.
#pragma once

#include "monitors/hooks/find.hpp"

#include <array>
#include <cstddef>
#include <span>

namespace pinfold::monitors {

/// The functions of each copy of libc that is loaded, the program's own first.
struct libc_copies {
  std::array<found_functions, copies_of_libc> all{};
  std::array<std::uintptr_t, copies_of_libc> bases{};
  std::size_t count = 0;

  [[nodiscard]] std::span<const found_functions> found() const noexcept { return std::span(all).first(count); }
};

/// Returns the program's own copy, with the dynamic linker's functions. Errors as `find_functions`.
[[nodiscard]] result<libc_copies> own_copy() noexcept;

/// Adds the copies that are not in `known`, and keeps them loaded, because their code is about to be changed. Calls the
/// dynamic linker, which takes its lock, and reads the list of mappings. `unsupported` if there are too many copies, or
/// if one cannot be kept loaded or hooked.
[[nodiscard]] result<libc_copies> with_new_copies(libc_copies known) noexcept;

}  // namespace pinfold::monitors
