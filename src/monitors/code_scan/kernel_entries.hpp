// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Finds the system-call instructions in a region of code.
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
  std::uintptr_t function = 0;  ///< the function's first address; 0 if unknown
  call_numbers numbers;
};

/// Finds the bytes of `syscall`, `sysenter` and `int $0x80` in a region and decodes the code around them. In a function
/// in the table, decoding it shows whether the bytes are an instruction. Between such functions they count as one if
/// any plausible decoding of the bytes before arrives there.
class entry_finder {
 public:
  /// `region` must outlive this object. Throws `std::bad_alloc`.
  explicit entry_finder(const code_region& region)
      : region_(region), functions_(region), sections_(code_sections(region, functions_.base())) {}

  /// Returns the addresses of those bytes, whether instructions or not; nothing if the region cannot be read. Throws
  /// `std::bad_alloc`.
  [[nodiscard]] std::optional<std::vector<std::uintptr_t>> candidates() const;

  /// Returns the entry at `candidate`; nothing if the bytes are only part of something else. Throws `std::bad_alloc`.
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
  std::optional<std::vector<jump>> jumps_;  // by target; found at the first request
};

}  // namespace pinfold::monitors::code_scan
