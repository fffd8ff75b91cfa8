// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Memory on pages of a known kind, populated, for measurements.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/pools/options.hpp>
#include <pinfold/range.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace tool {

/// Populated memory. The kernel was asked whether its pages are of the requested kind. Huge pages come whole: a smaller
/// size is the beginning of one.
class paged_memory {
 public:
  /// Maps the memory. Errors say why there are no such pages: `unsupported`, `out_of_resources`.
  [[nodiscard]] static pinfold::result<paged_memory> map(std::size_t bytes, pinfold::page_kind kind);
  paged_memory(paged_memory&&) noexcept;
  paged_memory& operator=(paged_memory&&) noexcept;
  ~paged_memory();

  [[nodiscard]] std::span<std::byte> bytes() const noexcept;
  [[nodiscard]] pinfold::range where() const noexcept;

  /// Returns why the kind is not certain; empty when it is.
  [[nodiscard]] const std::string& doubt() const noexcept;

 private:
  struct state;
  explicit paged_memory(std::unique_ptr<state> made) noexcept;
  std::unique_ptr<state> state_;
};

/// Returns `4k`, `thp` or `hugetlb`, as in rows and on the command line.
[[nodiscard]] const char* pages_name(pinfold::page_kind kind) noexcept;

/// Returns advice on an error of `map`, as a note for people.
[[nodiscard]] std::string missing_pages_note(pinfold::page_kind kind, std::size_t bytes, const pinfold::error& why);

}  // namespace tool
