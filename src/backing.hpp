// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What is behind memory of this process: who else could take its pages away.
#pragma once

#include <pinfold/error.hpp>
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

/// Refuses a descriptor that is not what the caller says it is, with `invalid_argument`: one that is not open, one of
/// something that has no pages, and a file with seals (memfd, tmpfs, hugetlbfs) that is not what is mapped in `memory`.
/// Other files are taken at their word: some file systems give a mapping another number than the file has. They have no
/// seals, so that nothing follows from it. Any thread.
[[nodiscard]] result<void> check_file(const range& memory, int file) noexcept;

}  // namespace pinfold::detail
