// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The result of a look-up in the index.
#pragma once

#include "index/entry.hpp"
#include "index/range_index.hpp"

namespace pinfold::core {

struct lookup_result {
  index::entry* match = nullptr;        ///< can serve the request, at once unless it is still `opening`
  index::entry* other_token = nullptr;  ///< covers the request, but its memory has another token by now
  index::entry* twin = nullptr;         ///< has the request's token, but is hidden
  access_flags around =
      access_flags::none;  ///< of all entries that contain the request: adds no remote access beyond them (R23)
  access_flags borrowed = access_flags::none;  ///< the part of `around` that only other shards' entries have
  bool beside = false;                         ///< whether a findable entry overlaps the request
  bool near = false;   ///< whether a findable entry overlaps the extent to register for the request
  bool alone = false;  ///< no entry at all overlaps that extent, and `place` is valid
  index::range_index::place place{};
};

}  // namespace pinfold::core
