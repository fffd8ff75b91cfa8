// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Which mappings this process has, and which of them are watched.
#pragma once

#include "monitors/userfaultfd_kernel.hpp"

#include <pinfold/range.hpp>

namespace pinfold::monitors::uffd {

/// /proc/self/maps; a number below 0 where there is none.
[[nodiscard]] descriptor open_maps() noexcept;

struct mappings {
  bool known = false;  ///< false before Linux 6.11
  bool whole = false;  ///< no hole in it
  range all;           ///< from the begin of the first mapping to the end of the last
};
/// Those under `pages`.
[[nodiscard]] mappings mappings_under(const descriptor& maps, const range& pages) noexcept;

/// Whether all of it is mapped. For kernels that do not tell what is.
[[nodiscard]] bool is_mapped(const range& pages) noexcept;

/// All mappings but the one that holds `but`. Walks the page tables of what was watched, as closing would. Does nothing
/// before Linux 6.11.
void stop_watching_all(int uffd, const descriptor& maps, const range& but) noexcept;

}  // namespace pinfold::monitors::uffd
