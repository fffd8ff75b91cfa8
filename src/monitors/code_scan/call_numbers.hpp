// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The system calls that an instruction can make.
#pragma once

#include "monitors/code_scan/instructions.hpp"

#include <cstdint>
#include <vector>

namespace pinfold::monitors::code_scan {

/// The numbers that eax may hold.
struct call_numbers {
  std::vector<std::uint32_t> values;
  bool unknown = false;  ///< whether eax may also hold another number
};

/// Returns the constants that reach instruction `index` on any path through the function; `code` is the whole function.
/// `entered_at` holds the sorted addresses in the function to which other code jumps. Assumes that a jump through a
/// table never goes to an instruction that is also reached in another way. Throws `std::bad_alloc`.
[[nodiscard]] call_numbers numbers_at(const code_bytes& code, const std::vector<instruction>& all, std::size_t index,
                                      const std::vector<std::uintptr_t>& entered_at = {});

/// Returns whether the system call with this number takes pages away from where they are mapped, makes memory
/// executable, or is unknown to this version of the library (R54).
[[nodiscard]] bool is_dangerous(std::uint32_t number) noexcept;

/// Returns the name of a dangerous call, for example "munmap", else "a system call".
[[nodiscard]] const char* name_of_call(std::uint32_t number) noexcept;

}  // namespace pinfold::monitors::code_scan
