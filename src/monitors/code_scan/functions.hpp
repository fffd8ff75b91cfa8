// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Where the functions of a program or library begin and end: the table that exceptions are thrown with
/// (`.eh_frame_hdr`) knows that of nearly all of them, also where symbols were stripped.
#pragma once

#include "monitors/code_scan/executable_memory.hpp"

#include <cstdint>
#include <vector>

namespace pinfold::monitors::code_scan {

class function_table {
 public:
  /// Of what was loaded with this region. Without a table of a form that is known here every function is unknown.
  /// Throws `std::bad_alloc`.
  explicit function_table(const code_region& region);

  /// A piece of code. Where it is no function that the table knows, it is all that lies between two such.
  struct piece {
    range at;
    bool known = false;
  };
  [[nodiscard]] piece around(std::uintptr_t address) const noexcept;

  /// What addresses are told relative to, as in the file.
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
