/* SPDX-License-Identifier: BSD-3-Clause */
/* The functions of libucs that are replaced: libucp and the transports call them through the dynamic linker. With a UCX
 * whose cache is another one they call UCX's own. Without rcache.h, whose types differ between versions. */
#include "ucx/region.h"
#include "ucx/ucx.h"

#include <pinfold/pinfold.h>

PINFOLD_API ucs_status_t ucs_rcache_create(const void *params, const char *name, void *stats, void *made);
PINFOLD_API void ucs_rcache_destroy(void *cache);
PINFOLD_API ucs_status_t ucs_rcache_get(void *cache, void *address, size_t length, uintptr_t fourth, uintptr_t fifth,
                                        uintptr_t sixth, uintptr_t seventh);
PINFOLD_API void ucs_rcache_region_put(void *cache, void *region);
PINFOLD_API void ucs_rcache_region_hold(void *cache, void *region);
PINFOLD_API void ucs_rcache_region_invalidate(void *cache, void *region, void (*done)(void *), void *arg);

ucs_status_t ucs_rcache_create(const void *params, const char *name, void *stats, void *made) {
  if (ucx()->replaceable) return create_cache(params, name, made);
  return ucx()->own.create != NULL ? ucx()->own.create(params, name, stats, made) : UCS_ERR_UNSUPPORTED;
}

void ucs_rcache_destroy(void *cache) { ucx()->replaceable ? destroy_cache(cache) : ucx()->own.destroy(cache); }

/* UCX 1.17 has a seventh argument. Where the caller passes six, the last is whatever is there, and not used. */
ucs_status_t ucs_rcache_get(void *cache, void *address, size_t length, uintptr_t fourth, uintptr_t fifth,
                            uintptr_t sixth, uintptr_t seventh) {
  if (ucx()->replaceable) return get_region(cache, address, length, (int)fourth, (void *)fifth, (void *)sixth);
  return ucx()->own.get(cache, address, length, fourth, fifth, sixth, seventh);
}

void ucs_rcache_region_put(void *cache, void *region) {
  ucx()->replaceable ? put_region(cache, region) : ucx()->own.put(cache, region);
}

void ucs_rcache_region_hold(void *cache, void *region) {
  ucx()->replaceable ? hold_region(region) : ucx()->own.hold(cache, region);
}

void ucs_rcache_region_invalidate(void *cache, void *region, void (*done)(void *), void *arg) {
  ucx()->replaceable ? invalidate_region(cache, region, done, arg) : ucx()->own.invalidate(cache, region, done, arg);
}
