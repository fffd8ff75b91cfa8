// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The parameters of a test that refuses each of `refusable_calls` once, with each of its errors.
#pragma once

#include "support/host/refused_one.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pinfold::testing {

/// A function, and what it fails with.
struct refused_case {
  std::size_t which = 0;  ///< of `refusable_calls`
  int native = 0;

  [[nodiscard]] const refusable& call() const noexcept { return refusable_calls[which]; }
  /// Returns a name for a test, such as `socket_EMFILE`.
  [[nodiscard]] std::string name() const {
    std::string made = std::string(call().name) + "_" + ::strerrorname_np(native);
    std::ranges::replace(made, ' ', '_');
    return made;
  }
  friend std::ostream& operator<<(std::ostream& to, const refused_case& one) {
    return to << one.call().name << ": " << std::strerror(one.native);
  }
};

[[nodiscard]] inline std::vector<refused_case> all_refused_cases() {
  std::vector<refused_case> made;
  for (std::size_t i = 0; i < refusable_count; ++i)
    for (const int native : refusable_calls[i].natives)
      if (native != 0) made.push_back({i, native});
  return made;
}

/// Returns those of the named functions.
[[nodiscard]] inline std::vector<refused_case> refused_cases_of(std::span<const char* const> names) {
  auto made = all_refused_cases();
  std::erase_if(made, [&](const refused_case& one) {
    return std::ranges::none_of(names, [&](std::string_view name) { return name == one.call().name; });
  });
  return made;
}

}  // namespace pinfold::testing
