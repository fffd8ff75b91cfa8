// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What a miss registers: perhaps more than the request asks for.
#pragma once

#include <pinfold/access.hpp>
#include <pinfold/range.hpp>

namespace pinfold::core {

/// The range and the rights of a new entry.
struct extent_to_open {
  range covered;
  access_flags access;
  bool as_scanned;      ///< the range is the one that the look-up scanned
  bool merged = false;  ///< more than the request asks for: if it fails, the request is opened alone
};

}  // namespace pinfold::core
