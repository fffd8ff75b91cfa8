// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Code of this library that enters the kernel by an instruction of its own, and code that the library generated: the
/// scan of the process's code skips both, by address.
#pragma once

#include <pinfold/range.hpp>

#include <cstdint>

namespace pinfold::invalidation {

/// Makes a system call without the functions of libc, which are hooked and set errno. Returns the kernel's result,
/// negative for an error. The only such instruction in this library.
long own_system_call(long number, unsigned long a = 0, unsigned long b = 0, unsigned long c = 0, unsigned long d = 0,
                     unsigned long e = 0, unsigned long f = 0) noexcept;

/// Notes memory into which this library wrote code that is never removed. Calls must not overlap.
void note_own_code(const range& made) noexcept;

/// Returns the code of `own_system_call` alone. Empty where it has no such instruction.
[[nodiscard]] range own_system_call_code() noexcept;

/// Returns whether an address lies in that code or in noted memory. Any thread.
[[nodiscard]] bool is_own_code(std::uintptr_t address) noexcept;

}  // namespace pinfold::invalidation
