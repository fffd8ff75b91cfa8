/* SPDX-License-Identifier: BSD-3-Clause */
/* The cache of one domain: its registrar calls the provider's own fi_mr_regattr and fi_close. */
#ifndef PINFOLD_LIBFABRIC_CACHE_H
#define PINFOLD_LIBFABRIC_CACHE_H

#include "libfabric/domain.h"

/* Returns the domain's cache, which the first call makes. Null if there cannot be one: `refusal` then says why. */
pinfold_cache *cache_of(struct hooked_domain *hooked);

/* Destroys the cache, and closes all of its regions. Returns 0, or -FI_EBUSY if a thread is still in the provider. */
int end_cache(struct hooked_domain *hooked);

/* Returns the provider's region of a lease. */
struct fid_mr *region_of(pinfold_lease lease);

#endif
