/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * \file
 * The C interface of acquires from several caches, for programs with several devices.
 */
#ifndef PINFOLD_CACHE_SET_H
#define PINFOLD_CACHE_SET_H

#include <pinfold/pinfold.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The order in which the caches of a set are asked. */
enum pinfold_set_policy {
  PINFOLD_SET_ALL = 0,        /**< all at once; those that have to register do so in parallel */
  PINFOLD_SET_NEAR_FIRST = 1, /**< at once those that are near; each other one by pinfold_acquire_late */
  PINFOLD_SET_FIXED_ORDER = 2 /**< one after the other on this thread, for drivers that accept one thread */
};

/** Options of one acquire of a set; all 0: from all, all or nothing. */
typedef struct pinfold_set_options {
  size_t size;               /**< sizeof the structure */
  uint32_t policy;           /**< a PINFOLD_SET_ number */
  uint32_t near_margin;      /**< caches at most this much farther away than the nearest one are near, too */
  size_t required;           /**< how many must succeed; 0: all that are asked */
  const uint32_t *distances; /**< of each cache from the memory, for PINFOLD_SET_NEAR_FIRST; null: all are near */
  void *argument;            /**< passed to each open of the registrars, also on threads of the library */
} pinfold_set_options;

/**
 * Acquires local memory from `count` caches, and writes a lease of each into `leases`. `options` may be null.
 *
 * If `required` is 0, the call succeeds if all that it asks succeed; otherwise no lease is held, and all of `leases`
 * are empty. If `required` is not 0, caches that fail are skipped as long as so many succeed: their leases are empty,
 * and `failures`, which may be null, has the reason of each. With PINFOLD_SET_NEAR_FIRST the next nearest ones are
 * then asked. A lease that is empty without a failure (`code` is PINFOLD_OK) was not needed yet: pinfold_acquire_late.
 *
 * Errors: PINFOLD_E_INVALID_ARGUMENT (no cache, null, an unknown policy, `required` above `count`), and those of
 * pinfold_acquire, from the first cache that failed. Release the leases one by one, or with pinfold_release_batch.
 */
PINFOLD_API int pinfold_acquire_set(pinfold_cache *const *caches, size_t count, const void *address, size_t bytes,
                                    uint32_t access, const pinfold_set_options *options, pinfold_lease *leases,
                                    pinfold_error *failures);

/**
 * Returns a lease of `caches[which]` on memory that pinfold_acquire_set acquired from others: `leases` is what it
 * wrote, one for each of the `count` caches. The caller stores the lease in `leases[which]`. No other thread may change
 * `leases` meanwhile. Errors: those of pinfold_acquire, and PINFOLD_E_STALE_HANDLE if one of the leases is stale: the
 * memory was replaced since, so the new registration would be of other memory.
 */
PINFOLD_API PINFOLD_USE_RESULT pinfold_lease pinfold_acquire_late(pinfold_cache *const *caches, size_t count,
                                                                  size_t which, const void *address, size_t bytes,
                                                                  uint32_t access, const pinfold_lease *leases);

#ifdef __cplusplus
}
#endif

#endif /* PINFOLD_CACHE_SET_H */
