// SPDX-License-Identifier: BSD-3-Clause
// Refused with: max_imported_registration_bytes
// The importer's record of a mapping lives inside the entry.
#include "importer.hpp"

struct registration {
#ifdef FIXED
  void* addresses[4];
#else
  void* addresses[5];
#endif
};

using cache = pinfold::import_cache<importer_of<good_handle, registration>>;
std::size_t size() { return sizeof(cache); }
