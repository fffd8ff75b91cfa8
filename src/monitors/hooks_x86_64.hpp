// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What the hooks have to know of machine code: where a jump fits, and how an instruction moves. Everything here is
/// pure: it reads the bytes that it is given and writes none. On other architectures `find_way_in` returns
/// `unsupported`.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/range.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace pinfold::monitors::x86_64 {

/// Instructions, and where they stand or are to stand.
struct text {
  std::span<const std::uint8_t> bytes;
  std::uintptr_t at = 0;

  [[nodiscard]] std::uintptr_t end() const noexcept { return at + bytes.size(); }
  /// From an address inside on.
  [[nodiscard]] text from(std::uintptr_t address) const noexcept { return {bytes.subspan(address - at), address}; }
};

/// Freshly made instructions.
struct code {
  static constexpr std::size_t most = 48;
  std::array<std::uint8_t, most> bytes{};
  std::size_t size = 0;
};

inline constexpr std::size_t short_jump_size = 2;
inline constexpr std::size_t jump_size = 5;
inline constexpr std::size_t far_jump_size = 14;

/// How a function can be made to jump elsewhere: at its entry, or at the jump that another library's short jump there
/// leads to. Only its first instruction is replaced, and by one that is not longer:
/// a thread that was stopped anywhere in the function goes on as if nothing had happened. All changed bytes of it lie
/// in one aligned word.
struct way_in {
  std::uintptr_t at = 0;   ///< the first instruction, after ENDBR64
  std::size_t length = 0;  ///< of that instruction
  range pad{};             ///< where it is too short for a jump: unused bytes near it
  std::uintptr_t hop = 0;  ///< where among those the jump goes; the others become breakpoints
};

/// Returns true if the jump at `jump` is what an earlier hook of the instruction at `at` left behind: no call comes
/// there any more, or one that is just on its way.
using is_left_over = bool (*)(std::uintptr_t jump, std::uintptr_t at) noexcept;

/// `taken` are pads that are promised to others. `unsupported` where a debugger's breakpoint stands, or nothing fits.
[[nodiscard]] result<way_in> find_way_in(const text& segment, std::uintptr_t entry, std::span<const range> taken,
                                         is_left_over left_over = nullptr) noexcept;

/// The one instruction at the start of `from`, made to do the same at `to`, and then a jump to what comes after it.
/// Another library's jump or call there is kept. `unsupported` for what cannot be moved.
[[nodiscard]] result<code> moved(const text& from, std::uintptr_t to) noexcept;

/// Whether what begins there is what hooks begin with: a jump, a call, or an address that goes into a register.
[[nodiscard]] bool leads_away(const text& from) noexcept;

/// Returns where the code in `bytes`, which stands at `at`, goes on if it begins with a jump to a fixed address,
/// possibly behind ENDBR64; 0 if it does not. Reads no further than that instruction.
[[nodiscard]] std::uintptr_t jump_target(const std::uint8_t* bytes, std::uintptr_t at) noexcept;

/// Where an aligned function that contains `address` begins: by the unused bytes before it. 0 if it cannot be told.
[[nodiscard]] std::uintptr_t begin_of_function(const text& segment, std::uintptr_t address) noexcept;

/// True where `to` is near enough of `from` for `jump`.
[[nodiscard]] bool reaches(std::uintptr_t from, std::uintptr_t to) noexcept;
[[nodiscard]] code jump(std::uintptr_t from, std::uintptr_t to) noexcept;
[[nodiscard]] code short_jump(std::uintptr_t from, std::uintptr_t to) noexcept;
[[nodiscard]] code far_jump(std::uintptr_t to) noexcept;  ///< from anywhere; uses no register

}  // namespace pinfold::monitors::x86_64
