// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Finds code that can take memory away, or make other code, without libc's functions.
#pragma once

#include "monitors/code_scan/executable_memory.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace pinfold::monitors::code_scan {

/// Code whose system calls are known.
struct known_code {
  std::vector<std::uintptr_t> hooked;  ///< entries of the functions whose callers are all seen
  std::vector<range> libc;  ///< of each copy: its other functions make calls of a variable number only for set*id
  range linker;             ///< likewise, and calls brk only before any library is loaded
};

/// Returns a text for people that describes the danger in a region of code: "libfoo.so: munmap by its own instruction
/// at +0x1234". Empty if there is none. Throws `std::bad_alloc`.
[[nodiscard]] std::string danger_in(const code_region& region, const known_code& known);

}  // namespace pinfold::monitors::code_scan
