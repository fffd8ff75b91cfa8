// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The result of a look-up in the index.
#pragma once

#include "core/entry.hpp"
#include "core/range_index.hpp"

namespace pinfold::core {

/// What there is around a request.
struct survey {
  entry* match = nullptr;        ///< can be handed out, at once unless it is still `opening`
  entry* other_token = nullptr;  ///< covers the request, for memory that has another token by now
  entry* twin = nullptr;         ///< for this very token, and not to be handed out any more
  rights around = rights::none;  ///< of all that covers it: a peer's only where it lies in what peers may use (R23)
  bool beside = false;           ///< whether anything that can be found overlaps it
  bool near = false;             ///< whether anything that can be found overlaps what would be registered for it
  bool alone = false;            ///< nothing at all does, and there is a place in the index
  range_index::place place{};
};

}  // namespace pinfold::core
