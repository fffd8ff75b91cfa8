// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The system-call instructions in a region of code.
#pragma once

#include "monitors/code_scan/call_numbers.hpp"
#include "monitors/code_scan/functions.hpp"
#include "monitors/code_scan/sections.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace pinfold::monitors::code_scan {

/// An instruction that enters the kernel.
struct kernel_entry {
  std::uintptr_t at = 0;
  std::uintptr_t function = 0;  ///< where the function begins; 0 if that is unknown
  call_numbers numbers;
};

/// Finds the bytes of `syscall`, `sysenter` and `int $0x80` in a region and decodes what is around them. In a function
/// that the table knows, its code tells whether they are an instruction. Between such functions they are one if any
/// plausible reading of the bytes before arrives there.
class entry_finder {
 public:
  /// Throws `std::bad_alloc`. `region` has to stay.
  explicit entry_finder(const code_region& region)
      : region_(region), functions_(region), sections_(code_sections(region, functions_.base())) {}

  /// Where those bytes are, instructions or not. Nothing where the region cannot be read. Throws `std::bad_alloc`.
  [[nodiscard]] std::optional<std::vector<std::uintptr_t>> candidates() const;

  /// Nothing where the bytes are only part of something else. Throws `std::bad_alloc`.
  [[nodiscard]] std::optional<kernel_entry> look_at(std::uintptr_t candidate);

  [[nodiscard]] const function_table& functions() const noexcept { return functions_; }

 private:
  struct jump {
    std::uintptr_t target, source;
  };
  [[nodiscard]] std::optional<kernel_entry> look_in(const range& function, std::uintptr_t candidate);
  [[nodiscard]] std::vector<std::uintptr_t> entered_at(const range& function);
  [[nodiscard]] std::vector<jump> find_jumps() const;

  const code_region& region_;
  function_table functions_;
  std::vector<range> sections_;
  std::optional<std::vector<jump>> jumps_;  // by target; found when they are first asked for
};

}  // namespace pinfold::monitors::code_scan
