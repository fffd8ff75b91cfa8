// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Texts of fixed length in a page.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace pinfold::observation {

/// Writes a text, cut to fit with a 0 byte at its end.
template <std::size_t N>
void put(std::array<char, N>& to, std::string_view text) noexcept {
  to.fill('\0');
  std::copy_n(text.begin(), std::min(text.size(), N - 1), to.begin());
}

/// Returns the text up to its 0 byte, with '?' for all but printable ASCII, so that a page cannot control a terminal.
/// Throws `std::bad_alloc`.
template <std::size_t N>
[[nodiscard]] std::string printable(const std::array<char, N>& from) {
  std::string text(from.begin(), std::find(from.begin(), from.end(), '\0'));
  for (char& one : text)
    if (one < ' ' || one > '~') one = '?';
  return text;
}

}  // namespace pinfold::observation
