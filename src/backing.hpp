// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What is behind memory of this process: who else could take its pages away.
#pragma once

#include <pinfold/range.hpp>

#include <cstdint>

namespace pinfold::detail {

/// The strongest reason in a range.
enum class backing : std::uint8_t {
  own,      ///< anonymous private memory: only this process, or nothing at all
  sealed,   ///< a file whose seals keep everybody from truncating it or punching holes
  program,  ///< a program's or library's text or data
  shared,   ///< another process can take pages away, by the file or by its own mapping
  unknown,  ///< the kernel does not say
};

/// `file` is the descriptor of what is mapped there, or negative. Private and shared mappings of a file are alike: both
/// lose their pages when it is truncated. Any thread; one or two questions to the kernel for each mapping in the range
/// (PROCMAP_QUERY, Linux 6.11), or, before that, a look through all of /proc/self/maps.
[[nodiscard]] backing backing_of(const range& memory, int file = -1) noexcept;

}  // namespace pinfold::detail
