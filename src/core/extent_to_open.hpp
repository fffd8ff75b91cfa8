// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The extent that a miss registers: perhaps more than the request asks for.
#pragma once

#include <pinfold/access.hpp>
#include <pinfold/range.hpp>

namespace pinfold::core {

/// Returns the access that `all` has and `less` has not.
[[nodiscard]] constexpr access_flags without(access_flags all, access_flags less) noexcept {
  return static_cast<access_flags>(static_cast<unsigned>(all) & ~static_cast<unsigned>(less));
}

/// The range and the access of a new entry.
struct extent_to_open {
  range covered;
  access_flags access;
  bool as_scanned;      ///< the range is the one that the look-up scanned
  bool merged = false;  ///< more than the request asks for: if it fails, the request is opened alone
  access_flags borrowed = access_flags::none;  ///< as in the `lookup_result`
};

}  // namespace pinfold::core
