// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Finds the mappings of this process, and those that are watched.
#pragma once

#include "monitors/userfaultfd/kernel.hpp"

#include <pinfold/range.hpp>

namespace pinfold::monitors::uffd {

/// Opens /proc/thread-self/maps; the number is negative if there is none.
[[nodiscard]] descriptor open_maps() noexcept;

struct mappings {
  bool known = false;  ///< false before Linux 6.11
  bool whole = false;  ///< true if there is no hole
  range all;           ///< from the start of the first mapping to the end of the last
};
[[nodiscard]] mappings mappings_under(const descriptor& maps, const range& pages) noexcept;

/// Returns whether the whole range is mapped. For kernels that cannot list mappings.
[[nodiscard]] bool is_mapped(const range& pages) noexcept;

/// A process's page map and its list of mappings, which may be negative.
struct own_memory {
  int maps = -1;
  int pagemap = -1;
};

/// Stops watching the first mapping at `at` or behind it, unless it contains `but`, and moves `at` to its end. Returns
/// false if there is none. Walks the page tables of watched memory, as closing would. Does nothing before Linux 6.11.
/// Makes system calls by number.
[[nodiscard]] bool stop_watching_next(int uffd, const own_memory& here, const range& but, std::uintptr_t& at) noexcept;

/// Stops watching all mappings but the one that contains `but`.
void stop_watching_all(int uffd, const descriptor& maps, const range& but) noexcept;

}  // namespace pinfold::monitors::uffd
