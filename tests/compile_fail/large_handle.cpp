// SPDX-License-Identifier: BSD-3-Clause
// Refused with: max_handle_bytes
// Every entry keeps a copy of its handle.
#include "importer.hpp"

#include <array>

struct handle {
#ifdef FIXED
  std::array<std::byte, 896> bytes;
#else
  std::array<std::byte, 897> bytes;
#endif
};

using cache = pinfold::import_cache<importer_of<handle>>;
std::size_t size() { return sizeof(cache); }
