// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Which memory of this process can be run.
#pragma once

#include <pinfold/range.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pinfold::monitors::code_scan {

/// Executable memory without a gap, of one file or of none.
struct code_region {
  range at;
  std::string path;           ///< as the kernel tells it; empty for anonymous memory
  std::string file;           ///< device and inode
  std::uint64_t offset = 0;   ///< in the file
  std::uintptr_t header = 0;  ///< where the start of the same file is mapped; 0 where it is not
  bool readable = false;
  bool writable = false;
  bool shared = false;

  /// Whether bytes of a file on a disk stand behind it, which only a change of the mapping or of the file changes.
  [[nodiscard]] bool is_of_a_file() const noexcept;
  /// Whether the kernel made it: the vDSO and its like.
  [[nodiscard]] bool is_of_the_kernel() const noexcept;
  /// The path's last part, or what stands in its place.
  [[nodiscard]] std::string_view name() const noexcept;

  friend bool operator==(const code_region&, const code_region&) = default;
};

/// What /proc/self/maps says, by address; nothing where it cannot be read. Throws `std::bad_alloc`.
[[nodiscard]] std::optional<std::vector<code_region>> executable_memory();

/// The same from the text of such a file.
[[nodiscard]] std::vector<code_region> executable_memory_in(std::string_view maps);

}  // namespace pinfold::monitors::code_scan
