// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Ranges of address space for `pinfold perf startup`.
#pragma once

#include <pinfold/range.hpp>

#include <cstddef>

namespace tool {

/// A mapping that begins at a multiple of 1 GiB, unmapped at the end.
class mapped_range {
 public:
  /// Reserves addresses without memory, which no thread can touch. Throws `failure`.
  [[nodiscard]] static mapped_range reserve(std::size_t bytes);

  /// Maps memory of which no page is present. Throws `failure`.
  /// \param huge whether the kernel is to use transparent huge pages.
  [[nodiscard]] static mapped_range map(std::size_t bytes, bool huge);

  mapped_range(mapped_range&& other) noexcept;
  mapped_range& operator=(mapped_range&&) = delete;
  ~mapped_range();

  [[nodiscard]] const pinfold::range& where() const noexcept { return where_; }

 private:
  mapped_range(std::size_t bytes, int protection);

  pinfold::range whole_;
  pinfold::range where_;
};

}  // namespace tool
