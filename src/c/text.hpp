// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Text for C callers, in the manner of snprintf(3).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>

namespace pinfold::c {

/// Copies as much as fits, with a final 0. Returns the length of the whole text.
inline std::size_t copy_text(std::string_view text, char* to, std::size_t room) noexcept {
  if (to == nullptr || room == 0) return text.size();
  const auto fits = std::min(text.size(), room - 1);
  std::memcpy(to, text.data(), fits);
  to[fits] = '\0';
  return text.size();
}

/// Copies the text that `make` returns; without memory for it, copies a message about that.
template <class Make>
std::size_t write_text(char* to, std::size_t room, Make&& make) noexcept {
  try {
    return copy_text(make(), to, room);
  } catch (const std::exception&) {
    return copy_text("no memory for the text", to, room);
  }
}

}  // namespace pinfold::c
