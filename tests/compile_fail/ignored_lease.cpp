// SPDX-License-Identifier: BSD-3-Clause
// Refused with: nodiscard
// An acquire whose result is dropped releases at once, and its error is lost.
#include "importer.hpp"

bool use(pinfold::import_cache<good_importer>& cache, const good_handle& handle) {
#ifdef FIXED
  return cache.acquire({}, handle, handle.base, 1).has_value();
#else
  cache.acquire({}, handle, handle.base, 1);
  return true;
#endif
}
