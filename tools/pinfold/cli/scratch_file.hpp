// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A real file to read and write, which is removed at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tool {

/// A file without a name, in the directory of the user's choice; it bypasses the page cache where the file system
/// allows it.
class scratch_file {
 public:
  /// Throws `usage_failure` when the directory is none, not writable, or has no room for `bytes`; `failure` otherwise.
  scratch_file(const std::string& directory, std::size_t bytes);
  scratch_file(const scratch_file&) = delete;
  scratch_file& operator=(const scratch_file&) = delete;
  ~scratch_file();

  [[nodiscard]] const std::string& directory() const noexcept { return directory_; }
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }
  [[nodiscard]] bool direct() const noexcept { return direct_; }  ///< O_DIRECT

  /// Returns whether the file's first `bytes` bytes are the content of `seed`. Throws `failure` when the file cannot be
  /// read.
  [[nodiscard]] bool holds_content(std::uint64_t seed, std::size_t bytes) const;

 private:
  std::string directory_;
  int descriptor_ = -1;
  bool direct_ = false;
};

/// Returns the default directory of scratch files: $TMPDIR, or /var/tmp, which is on a disk where /tmp may not be.
[[nodiscard]] std::string scratch_directory();

}  // namespace tool
