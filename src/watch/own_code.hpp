// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Code of this library that enters the kernel by an instruction of its own, and code that it made: what looks for such
/// code in the process leaves these out, by their addresses.
#pragma once

#include <pinfold/range.hpp>

#include <cstdint>

namespace pinfold::watch {

/// A system call by no function of libc's: those are hooked, and they set errno. Returns the kernel's own answer,
/// negative for an error. The only such instruction in this library.
long own_system_call(long number, unsigned long a = 0, unsigned long b = 0, unsigned long c = 0, unsigned long d = 0,
                     unsigned long e = 0, unsigned long f = 0) noexcept;

/// Notes memory that this library has put code into, which stays for ever. Not at the same time as itself.
void note_own_code(const range& made) noexcept;

/// Where `own_system_call` is, and nothing else. Empty where it has no such instruction.
[[nodiscard]] range own_system_call_code() noexcept;

/// Whether an address lies in either. Any thread.
[[nodiscard]] bool is_own_code(std::uintptr_t address) noexcept;

}  // namespace pinfold::watch
