// SPDX-License-Identifier: BSD-3-Clause
// Refused with: pinfold_acquire.*(unused|warn_unused_result)
// A lease of C that is not stored is never released.
#include <pinfold/pinfold.h>

void use(pinfold_cache* cache, const void* memory) {
#ifdef FIXED
  const auto lease =
#endif
      pinfold_acquire(cache, memory, 1, PINFOLD_LOCAL_READ);
#ifdef FIXED
  pinfold_release(lease);
#endif
}
