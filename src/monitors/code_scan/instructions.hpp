// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Decodes instructions of x86-64 as far as they matter for how code enters the kernel. Pure: reads only the bytes that
/// it is given. On other processors, and without Zydis, it decodes nothing.
#pragma once

#include "os/check.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace pinfold::monitors::code_scan {

[[nodiscard]] bool can_decode() noexcept;

struct code_bytes {
  std::span<const std::uint8_t> bytes;
  std::uintptr_t at = 0;

  [[nodiscard]] std::uintptr_t end() const noexcept { return at + bytes.size(); }
  [[nodiscard]] code_bytes from(std::uintptr_t address) const noexcept {
    PINFOLD_ASSERT(at <= address && address <= end(), "the address lies in the code");
    return {bytes.subspan(address - at), address};
  }
};

enum class flow : std::uint8_t {
  next,           ///< continues with the next instruction; calls, too
  branch,         ///< continues there or at `target`
  jump,           ///< continues at `target`
  indirect_jump,  ///< continues anywhere
  end,            ///< a return, or an instruction after which nothing runs
};

enum class entry_by : std::uint8_t { nothing, syscall, sysenter, int80 };

struct instruction {
  std::uintptr_t at = 0;
  std::uintptr_t target = 0;
  std::uint8_t length = 0;
  flow next = flow::next;
  entry_by enters = entry_by::nothing;
  bool is_privileged = false;  ///< faults in user mode
  bool is_fill = false;        ///< does nothing: padding between functions and before loops

  [[nodiscard]] std::uintptr_t end() const noexcept { return at + length; }
};

/// Returns the instruction at the start of `code`; nothing if there is none.
[[nodiscard]] std::optional<instruction> decode(const code_bytes& code) noexcept;

/// Returns all instructions from the start of `code`, up to the first that cannot be decoded. Throws `std::bad_alloc`.
[[nodiscard]] std::vector<instruction> decode_all(const code_bytes& code);

/// A general register, by its number in machine code: 0 is rax.
using general_register = unsigned;
inline constexpr general_register rax = 0;

/// The effect of an instruction on a register.
struct effect {
  enum class kind : std::uint8_t { none, constant, copy, unknown };
  kind what = kind::none;
  std::uint32_t value = 0;        ///< the constant's lower half
  general_register source = rax;  ///< of the copy
};
[[nodiscard]] effect effect_on(general_register which, const code_bytes& code) noexcept;

}  // namespace pinfold::monitors::code_scan
