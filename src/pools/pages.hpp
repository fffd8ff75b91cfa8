// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Maps memory from the system, and reports the kind of pages that it got.
#pragma once

#include <pinfold/pools/options.hpp>
#include <pinfold/range.hpp>

#include <cstddef>
#include <cstdint>

namespace pinfold::pools {

inline constexpr std::size_t huge_page = std::size_t{2} << 20U;

/// Returns the size of the system's small pages, in bytes.
[[nodiscard]] std::size_t small_page() noexcept;

[[nodiscard]] constexpr std::size_t rounded(std::size_t bytes, std::size_t to) noexcept {
  return (bytes + to - 1) / to * to;
}

/// Returns the size of a mapping of `bytes` bytes, in pages of that kind, which must not be `best`.
[[nodiscard]] std::size_t bytes_as(std::size_t bytes, page_kind kind) noexcept;

/// One mapping: readable, writable, populated, and zero unless `used_before`.
struct mapping {
  range memory{};
  page_kind pages = page_kind::plain;
  const char* reason = "";
  std::int32_t native = 0;
  bool used_before = false;
};

/// Maps private memory of whole pages with that protection, aligned to the largest power of 2 that exceeds neither its
/// size nor 2 MiB.
[[nodiscard]] result<range> reserve(std::size_t bytes, int protection) noexcept;

/// Maps at least `bytes` bytes of private memory, of the first wanted kind that the system provides, aligned as
/// `reserve` does.
class mapper {
 public:
  explicit mapper(std::size_t bytes) noexcept : bytes_(bytes) {}
  virtual ~mapper() = default;
  mapper(const mapper&) = delete;
  mapper& operator=(const mapper&) = delete;

  [[nodiscard]] result<mapping> map(page_kind wanted) noexcept;

 protected:
  /// Maps the memory of one attempt, from hugetlbfs if that is the kind.
  [[nodiscard]] virtual result<range> obtain(std::size_t bytes, page_kind kind) noexcept;

  /// Called once the memory has its pages. Private memory needs nothing more.
  [[nodiscard]] virtual result<void> finish(const range&) noexcept { return {}; }

 private:
  [[nodiscard]] result<mapping> attempt(page_kind kind) noexcept;
  [[nodiscard]] result<void> fill(mapping& made) noexcept;

  std::size_t bytes_;
};

void unmap(const range& memory) noexcept;

}  // namespace pinfold::pools
