// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Which system call an instruction can make.
#pragma once

#include "monitors/code_scan/instructions.hpp"

#include <cstdint>
#include <vector>

namespace pinfold::monitors::code_scan {

/// Numbers that may stand in eax.
struct call_numbers {
  std::vector<std::uint32_t> values;
  bool unknown = false;  ///< and any other
};

/// Of instruction `index` of a function, of which `code` is all: constants that reach it, on whatever way through the
/// function. `entered_at` are the addresses in it, sorted, that other code jumps to. Assumes that a jump through a
/// table goes to no instruction that is reached otherwise, too. Throws `std::bad_alloc`.
[[nodiscard]] call_numbers numbers_at(const code_bytes& code, const std::vector<instruction>& all, std::size_t index,
                                      const std::vector<std::uintptr_t>& entered_at = {});

/// Whether a system call of this number takes pages away from where they are mapped, makes memory executable, or is not
/// known to this version of the library (R54).
[[nodiscard]] bool is_dangerous(std::uint32_t number) noexcept;

/// "munmap", or "a system call".
[[nodiscard]] const char* name_of_call(std::uint32_t number) noexcept;

}  // namespace pinfold::monitors::code_scan
