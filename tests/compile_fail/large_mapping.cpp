// SPDX-License-Identifier: BSD-3-Clause
// Refused with: max_mapping_bytes
// The importer's record of a mapping lives inside the entry.
#include "importer.hpp"

struct mapping {
#ifdef FIXED
  void* addresses[4];
#else
  void* addresses[5];
#endif
};

using cache = pinfold::import_cache<importer_of<good_handle, mapping>>;
std::size_t size() { return sizeof(cache); }
