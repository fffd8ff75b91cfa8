// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A page as a reader sees it: a file that another process may change or truncate at any time.
#pragma once

#include "observation/process_identity.hpp"
#include "os/file.hpp"

#include <pinfold/error.hpp>
#include <pinfold/observation/layout.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace pinfold::observation {

/// Reads with pread(2): reading a mapping of a truncated file would raise SIGBUS.
class page_source {
 public:
  /// Errors: `invalid_handle` for a file that is not regular; `not_permitted` for one that does not belong to `owner`,
  /// where that is given; the system's. `writable` for `event_reader::want_stacks`.
  [[nodiscard]] static result<page_source> open(const std::string& path, bool writable,
                                                std::optional<std::uint32_t> owner = std::nullopt) noexcept;

  /// Reads the header, and checks all that later reads depend on. Errors: `invalid_handle`, `unsupported`.
  [[nodiscard]] result<page_header> header() const noexcept;

  /// Returns whether the process that wrote this header runs: by its lock on the file, in every PID namespace; without
  /// a lock, by /proc in the process's own namespace.
  [[nodiscard]] process_life life_of_process(const page_header& of) const noexcept;

  /// Fills `into` from an offset. Errors: `invalid_handle` if the file ends earlier.
  [[nodiscard]] result<void> read(std::uint64_t from, std::span<std::byte> into) const noexcept;

  template <class T>
  [[nodiscard]] result<void> read(std::uint64_t from, T& into) const noexcept {
    return read(from, std::as_writable_bytes(std::span(&into, 1)));
  }

  [[nodiscard]] const os::file& file() const noexcept { return file_; }

  /// Returns whether both have one file open: the name may refer to another file by now.
  [[nodiscard]] bool is_same_file(const page_source& other) const noexcept;

 private:
  os::file file_;
};

}  // namespace pinfold::observation
