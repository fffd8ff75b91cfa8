// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Instructions of x86-64, as far as they matter for how code enters the kernel. Pure: reads the bytes that it is
/// given. On other processors, and without Zydis, nothing is decoded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace pinfold::monitors::code_scan {

/// Whether code can be decoded here at all.
[[nodiscard]] bool can_decode() noexcept;

/// Code, and where it stands.
struct code_bytes {
  std::span<const std::uint8_t> bytes;
  std::uintptr_t at = 0;

  [[nodiscard]] std::uintptr_t end() const noexcept { return at + bytes.size(); }
  [[nodiscard]] code_bytes from(std::uintptr_t address) const noexcept {
    return {bytes.subspan(address - at), address};
  }
};

enum class flow : std::uint8_t {
  next,           ///< goes on with the next instruction; calls, too
  branch,         ///< that, or `target`
  jump,           ///< `target`
  indirect_jump,  ///< anywhere
  end,            ///< a return, or nothing that comes back
};

enum class entry_by : std::uint8_t { nothing, syscall, sysenter, int80 };

struct instruction {
  std::uintptr_t at = 0;
  std::uintptr_t target = 0;
  std::uint8_t length = 0;
  flow next = flow::next;
  entry_by enters = entry_by::nothing;
  bool is_privileged = false;  ///< faults in a program
  bool is_fill = false;        ///< does nothing: what stands between functions and before loops

  [[nodiscard]] std::uintptr_t end() const noexcept { return at + length; }
};

/// The one at the start of `code`; nothing where there is none.
[[nodiscard]] std::optional<instruction> decode(const code_bytes& code) noexcept;

/// All from the start of `code` on, as far as they can be decoded. Throws `std::bad_alloc`.
[[nodiscard]] std::vector<instruction> decode_all(const code_bytes& code);

/// A general register, by the number that its name has in machine code: 0 is rax.
using general_register = unsigned;
inline constexpr general_register rax = 0;

/// What an instruction does to a register.
struct effect {
  enum class kind : std::uint8_t { none, constant, copy, unknown };
  kind what = kind::none;
  std::uint32_t value = 0;        ///< the constant's lower half
  general_register source = rax;  ///< of the copy
};
[[nodiscard]] effect effect_on(general_register which, const code_bytes& code) noexcept;

}  // namespace pinfold::monitors::code_scan
