// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Lists the executable memory of this process.
#pragma once

#include <pinfold/range.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pinfold::monitors::code_scan {

/// Contiguous executable memory of one file, or of none.
struct code_region {
  range at;
  std::string path;           ///< as the kernel reports it; empty for anonymous memory
  std::string file;           ///< device and inode
  std::uint64_t offset = 0;   ///< in the file
  std::uintptr_t header = 0;  ///< where the start of the same file is mapped; 0 if it is not mapped
  bool readable = false;
  bool writable = false;
  bool shared = false;

  /// Returns whether a file on a disk backs it, so that its bytes change only with the mapping or the file.
  [[nodiscard]] bool is_of_a_file() const noexcept;
  /// Returns whether the kernel made it: the vDSO and the like.
  [[nodiscard]] bool is_of_the_kernel() const noexcept;
  /// Returns the path's last part, or a description if there is no path.
  [[nodiscard]] std::string_view name() const noexcept;

  friend bool operator==(const code_region&, const code_region&) = default;
};

/// Returns the regions in /proc/thread-self/maps, by address; nothing if the file cannot be read. Throws
/// `std::bad_alloc`.
[[nodiscard]] std::optional<std::vector<code_region>> executable_memory();

/// Returns the regions in the text of such a file.
[[nodiscard]] std::vector<code_region> executable_memory_in(std::string_view maps);

}  // namespace pinfold::monitors::code_scan
