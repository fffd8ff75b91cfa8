// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Finds where the functions of a program or library begin and end. The table for exceptions (`.eh_frame_hdr`) lists
/// nearly all of them, even if symbols were stripped.
#pragma once

#include "monitors/code_scan/executable_memory.hpp"

#include <cstdint>
#include <vector>

namespace pinfold::monitors::code_scan {

class function_table {
 public:
  /// Reads the table of the file that this region was loaded from. Without a table in a known form every function is
  /// unknown. Throws `std::bad_alloc`.
  explicit function_table(const code_region& region);

  /// A piece of code: a function in the table, or all code between two such functions.
  struct piece {
    range at;
    bool known = false;
  };
  [[nodiscard]] piece around(std::uintptr_t address) const noexcept;

  /// Returns the address to which the file's addresses are relative.
  [[nodiscard]] std::uintptr_t base() const noexcept { return base_; }

 private:
  struct entry {
    std::uintptr_t begin;
    std::uintptr_t description;
  };
  [[nodiscard]] range extent_of(const entry& known) const noexcept;
  void read(std::uintptr_t header);

  range code_;
  std::uintptr_t base_ = 0;
  std::vector<entry> entries_;
};

}  // namespace pinfold::monitors::code_scan
