// SPDX-License-Identifier: BSD-3-Clause
// Refused with: has_unique_object_representations_v
// Handles are compared byte by byte, and padding has no value.
#include "importer.hpp"

struct padded_handle {
  std::uint64_t serial;
  std::uint32_t device;
#ifdef FIXED
  std::uint32_t reserved;
#endif
};

using cache = pinfold::import_cache<importer_of<padded_handle>>;
std::size_t size() { return sizeof(cache); }
