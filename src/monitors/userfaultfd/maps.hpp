// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Finds the mappings of this process, and those that are watched.
#pragma once

#include "monitors/userfaultfd/kernel.hpp"

#include <pinfold/range.hpp>

#include <array>
#include <cstddef>
#include <cstdint>

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

// All that follows makes system calls by number.

/// The list of this process's mappings and its page map, open; each may be negative.
struct own_memory {
  int maps = -1;
  int pagemap = -1;
};
[[nodiscard]] own_memory open_own_memory() noexcept;

/// Goes through the mappings once, in ascending order. Before Linux 6.11 it reads the list as text, which only the
/// thread that opened the list can do, and only once.
class mapping_list {
 public:
  explicit mapping_list(int maps) noexcept : maps_(maps) {}

  /// Returns the next mapping; an empty range behind the last one, and where the kernel does not list any more.
  [[nodiscard]] range next() noexcept;
  /// Returns whether `next` has returned all mappings.
  [[nodiscard]] bool is_complete() const noexcept { return complete_; }

 private:
  [[nodiscard]] range next_as_text() noexcept;
  [[nodiscard]] std::uintptr_t address_before(char end) noexcept;
  [[nodiscard]] int next_character() noexcept;

  int maps_;
  std::uintptr_t at_ = 0;
  bool as_text_ = false;
  bool complete_ = false;
  std::array<char, 4096> text_{};
  std::size_t used_ = 0;
  std::size_t held_ = 0;
};

/// Stops watching a mapping, unless another userfaultfd watches it. Walks the page tables of watched memory, as closing
/// would. `pagemap` may be negative.
void stop_watching_mapping(int uffd, int pagemap, const range& mapping) noexcept;

}  // namespace pinfold::monitors::uffd
