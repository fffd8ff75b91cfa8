// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The machine code that the hooks need: where a jump fits, and how an instruction moves. Everything here is pure: it
/// reads the bytes that it is given and writes none. On other architectures `find_way_in` returns `unsupported`.
#pragma once

#include "os/check.hpp"

#include <pinfold/error.hpp>
#include <pinfold/range.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace pinfold::monitors::x86_64 {

/// Instructions, and their present or future address.
struct text {
  std::span<const std::uint8_t> bytes;
  std::uintptr_t at = 0;

  [[nodiscard]] std::uintptr_t end() const noexcept { return at + bytes.size(); }
  [[nodiscard]] text from(std::uintptr_t address) const noexcept {
    PINFOLD_ASSERT(at <= address && address <= end(), "the address lies in the text");
    return {bytes.subspan(address - at), address};
  }
};

struct code {
  static constexpr std::size_t most = 48;
  std::array<std::uint8_t, most> bytes{};
  std::size_t size = 0;
};

inline constexpr std::size_t short_jump_size = 2;
inline constexpr std::size_t jump_size = 5;
inline constexpr std::size_t far_jump_size = 14;

/// How to make a function jump elsewhere: at its entry, or at the jump to which another library's short jump there
/// leads. Only the first instruction is replaced, by one that is not longer: a thread that was stopped anywhere in the
/// function continues unaffected. All changed bytes of the instruction lie in one aligned word.
struct way_in {
  std::uintptr_t at = 0;   ///< the first instruction, after ENDBR64
  std::size_t length = 0;  ///< of that instruction
  range pad{};             ///< unused bytes near it, if it is too short for a jump
  std::uintptr_t hop = 0;  ///< where in the pad the jump goes; the other bytes become breakpoints
};

/// Returns true if the jump at `jump` was left behind by an earlier hook of the instruction at `at`: no new call
/// reaches it, but a call may still be on its way through.
using is_left_over = bool (*)(std::uintptr_t jump, std::uintptr_t at) noexcept;

/// `taken` are pads reserved for other jumps. `unsupported` if a debugger has set a breakpoint, or no jump fits.
[[nodiscard]] result<way_in> find_way_in(const text& segment, std::uintptr_t entry, std::span<const range> taken,
                                         is_left_over left_over = nullptr) noexcept;

/// Returns code for `to` that does the same as the instructions at the start of `from` up to the first that ends at or
/// behind `at_least` bytes, followed by a jump to the next instruction. Keeps another library's jump or call there.
/// `unsupported` for an instruction that cannot be moved, and for a branch before the last. If more than one
/// instruction is replaced, no thread may be about to run any but the first, and no code may jump to any but the first.
[[nodiscard]] result<code> moved(const text& from, std::uintptr_t to, std::size_t at_least = 1) noexcept;

/// Returns whether the code begins as hooks begin: with a jump, a call, or an address loaded into a register.
[[nodiscard]] bool leads_away(const text& from) noexcept;

/// Returns where the code in `bytes`, which lies at `at`, continues if it begins with a jump to a fixed address,
/// possibly behind ENDBR64; else 0. Reads no further than that instruction.
[[nodiscard]] std::uintptr_t jump_target(const std::uint8_t* bytes, std::uintptr_t at) noexcept;

/// Returns where an aligned function that contains `address` begins, by the unused bytes before it; 0 if that is
/// unclear.
[[nodiscard]] std::uintptr_t begin_of_function(const text& segment, std::uintptr_t address) noexcept;

/// Returns true if `to` is near enough to `from` for `jump`.
[[nodiscard]] bool reaches(std::uintptr_t from, std::uintptr_t to) noexcept;
[[nodiscard]] code jump(std::uintptr_t from, std::uintptr_t to) noexcept;
[[nodiscard]] code short_jump(std::uintptr_t from, std::uintptr_t to) noexcept;
[[nodiscard]] code far_jump(std::uintptr_t to) noexcept;  ///< from anywhere; uses no register

/// Returns a `jump` if it reaches, filled up to `far_jump_size`, else a `far_jump`. After a system call the CPU has
/// lost its predictions of indirect jumps, so each costs a misprediction.
[[nodiscard]] code shortest_jump(std::uintptr_t from, std::uintptr_t to) noexcept;

}  // namespace pinfold::monitors::x86_64
