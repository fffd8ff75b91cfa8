/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls the registration cache of a newer UCX; fails if an argument or a call is lost. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

int ucs_rcache_create(const void *params, const char *name, void *stats, void **made);
int ucs_rcache_get(void *cache, void *address, size_t length, size_t alignment, int prot, void *arg, void **region);
void ucs_rcache_region_put(void *cache, void *region);
void ucs_rcache_region_hold(void *cache, void *region);
void ucs_rcache_region_invalidate(void *cache, void *region, void (*done)(void *), void *arg);
void ucs_rcache_destroy(void *cache);
int puts_of(void *unused);

static void done(void *arg) { ++*(int *)arg; }

int main(void) {
  void *cache, *region;
  int invalidated = 0;
  char here;
  if (ucs_rcache_create(NULL, "other", NULL, &cache) != 0) return 1;
  if (ucs_rcache_get(cache, &here, 5, 64, 3, &invalidated, &region) != 0) return 2;
  const uintptr_t passed[] = {(uintptr_t)cache,        (uintptr_t)&here,  5, 64, 3,
                              (uintptr_t)&invalidated, (uintptr_t)&region};
  for (int i = 0; i < 7; ++i) {
    if (((uintptr_t *)region)[i] != passed[i]) {
      printf("argument %d is lost\n", i + 1);
      return 3;
    }
  }
  ucs_rcache_region_put(cache, region);
  ucs_rcache_region_put(cache, region);
  ucs_rcache_region_hold(cache, region);
  ucs_rcache_region_invalidate(cache, region, done, &invalidated);
  ucs_rcache_destroy(cache);
  return puts_of(NULL) == 2 && invalidated == 1 ? 0 : 4;
}
