// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Code that can take memory away, or make other code, past libc's functions.
#pragma once

#include "monitors/code_scan/executable_memory.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace pinfold::monitors::code_scan {

/// Code whose system calls are known.
struct known_code {
  std::vector<std::uintptr_t> hooked;  ///< entries of functions all of whose callers are seen
  std::vector<range> libc;  ///< of each copy: other functions make calls of a variable number only for set*id
  range linker;             ///< the same, and brk only before any library is there
};

/// Says what is wrong with a region of code, for people: "libfoo.so: munmap by its own instruction at +0x1234". Empty
/// where nothing is. Throws `std::bad_alloc`.
[[nodiscard]] std::string danger_in(const code_region& region, const known_code& known);

}  // namespace pinfold::monitors::code_scan
