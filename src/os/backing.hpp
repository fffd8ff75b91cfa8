// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The backing of this process's memory, and whether another process could take its pages away.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/range.hpp>

#include <cstdint>

namespace pinfold::detail {

/// The backing of a range; of several mappings, the value that is last in this list.
enum class backing : std::uint8_t {
  own,      ///< anonymous private memory: belongs to this process alone; or no memory at all
  sealed,   ///< a file whose seals prevent truncation and hole punching
  program,  ///< a program's or library's text or data
  shared,   ///< another process can take pages away, by the file or by its own mapping
  unknown,  ///< unknown to the kernel
};

/// Returns the backing of `memory`. `file` is the descriptor of the mapped file, or negative. Private and shared
/// mappings of a file are alike: both lose their pages when the file is truncated. Any thread. Costs one or two queries
/// of the kernel for each mapping in the range (PROCMAP_QUERY, Linux 6.11); before that, reads the whole list.
[[nodiscard]] backing backing_of(const range& memory, int file = -1) noexcept;

/// Refuses with `invalid_argument` a descriptor that is not open, belongs to an object without pages, or belongs to a
/// file with seals (memfd, tmpfs, hugetlbfs) that is not mapped in `memory`. Accepts other files without a check: some
/// file systems report another number for a mapping than for the file. They have no seals, so nothing depends on them.
/// Any thread.
[[nodiscard]] result<void> check_file(const range& memory, int file) noexcept;

}  // namespace pinfold::detail
