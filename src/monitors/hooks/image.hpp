// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A loaded library, read from its ELF headers in memory: its symbols and its code. Calls no function of the dynamic
/// linker, which other libraries replace (UCX does), and takes no lock.
#pragma once

#include "monitors/hooks/x86_64.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pinfold::monitors {

/// An executable segment, and its offset in the file.
struct code_segment {
  x86_64::text text;
  std::size_t offset = 0;
};

/// Valid as long as the library stays loaded.
class loaded_image {
 public:
  loaded_image() noexcept = default;
  /// Reads the library whose ELF header is at `base`. The image is empty if there is no header or no dynamic section
  /// there.
  explicit loaded_image(std::uintptr_t base) noexcept;

  [[nodiscard]] explicit operator bool() const noexcept { return strings_ != nullptr; }
  [[nodiscard]] std::uintptr_t base() const noexcept { return base_; }
  /// Returns DT_SONAME: `libc.so.6`; empty if there is none.
  [[nodiscard]] std::string_view name() const noexcept;
  /// Returns the address that the library exports under that name, in its default version; 0 if there is none.
  [[nodiscard]] std::uintptr_t symbol(std::string_view name) const noexcept;
  /// Returns the executable segment that contains `address`, or the first if `address` is 0.
  [[nodiscard]] code_segment code_around(std::uintptr_t address) const noexcept;

 private:
  [[nodiscard]] std::uintptr_t place(std::uintptr_t value) const noexcept;

  std::uintptr_t base_ = 0;
  const char* strings_ = nullptr;
  const void* symbols_ = nullptr;
  const std::uint32_t* hash_ = nullptr;
  const std::uint16_t* versions_ = nullptr;
  std::size_t soname_ = 0;
};

}  // namespace pinfold::monitors
