// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Text of files and of other processes.
#pragma once

#include <string>

namespace tool {

/// Returns the text with '?' for all that is not printable ASCII: a terminal must not obey it, nor JSON refuse it.
[[nodiscard]] inline std::string printable(std::string text) {
  for (char& one : text)
    if (one < ' ' || one > '~') one = '?';
  return text;
}

}  // namespace tool
