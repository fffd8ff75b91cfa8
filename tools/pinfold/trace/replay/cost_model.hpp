// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The cost of registering where no trace has it: linear in the size.
#pragma once

#include <cstddef>
#include <span>

namespace tool {

/// Nanoseconds: fixed, and for each KiB.
struct cost_model {
  const char* name;
  const char* source;
  double open_fixed;
  double open_per_kib;
  double close_fixed;
  double close_per_kib;

  [[nodiscard]] double open_ns(std::size_t bytes) const noexcept {
    return open_fixed + open_per_kib * static_cast<double>(bytes) / 1024;
  }
  [[nodiscard]] double close_ns(std::size_t bytes) const noexcept {
    return close_fixed + close_per_kib * static_cast<double>(bytes) / 1024;
  }
};

/// The first is io_uring with pages of 4 KiB, the second with huge ones.
[[nodiscard]] std::span<const cost_model> all_cost_models() noexcept;

}  // namespace tool
