/* SPDX-License-Identifier: BSD-3-Clause */
#include "ucx/region.h"

#include "common/report.h"
#include "ucx/cache.h"

#include <stdlib.h>

/* The driver's answer is UCX's own status, negative; other failures are pinfold's. */
static ucs_status_t status_of(const pinfold_error *failure) {
  if (failure->native < 0) return (ucs_status_t)failure->native;
  switch (failure->code) {
    case PINFOLD_E_INVALID_RANGE:
    case PINFOLD_E_INVALID_ARGUMENT: return UCS_ERR_INVALID_PARAM;
    case PINFOLD_E_TOO_LARGE:
    case PINFOLD_E_OVER_BUDGET:
    case PINFOLD_E_LARGER_THAN_BUDGET: return UCS_ERR_EXCEEDS_LIMIT;
    case PINFOLD_E_OUT_OF_RESOURCES: return UCS_ERR_NO_MEMORY;
    case PINFOLD_E_IN_USE_CONFLICT: return UCS_ERR_BUSY;
    case PINFOLD_E_UNSUPPORTED: return UCS_ERR_UNSUPPORTED;
    case PINFOLD_E_TIMED_OUT: return UCS_ERR_TIMED_OUT;
    case PINFOLD_E_CLOSED: return UCS_ERR_CANCELED;
    default: return UCS_ERR_IO_ERROR;
  }
}

static uint32_t access_of(int prot) {
  return ((prot & PROT_READ) != 0 ? PINFOLD_LOCAL_READ : 0U) | ((prot & PROT_WRITE) != 0 ? PINFOLD_LOCAL_WRITE : 0U);
}

/* Rounds as UCX does. Returns 0 if that is no range. */
static int round_out(size_t alignment, void *address, size_t length, struct request *request) {
  const uintptr_t first = (uintptr_t)address & ~(alignment - 1);
  const uintptr_t last = ((uintptr_t)address + length + alignment - 1) & ~(alignment - 1);
  request->address = (void *)first;
  request->bytes = last - first;
  return length <= PTRDIFF_MAX && last > first;
}

static void close_what_is_due(ucs_rcache_t *cache) {
  __atomic_store_n(&cache->unmapped, 0, __ATOMIC_RELAXED);
  pinfold_progress(cache->cache);
}

ucs_status_t get_region(ucs_rcache_t *cache, void *address, size_t length, int prot, void *arg,
                        ucs_rcache_region_t **region) {
  struct request request = {.arg = arg};
  if (!round_out(cache->params.alignment, address, length, &request)) return UCS_ERR_INVALID_PARAM;
  pinfold_acquire_options how = {.size = sizeof how, .argument = &request};
  pinfold_lease lease = pinfold_acquire_with(cache->cache, request.address, request.bytes, access_of(prot), &how);
  if (lease.pin == 0 && pinfold_last_error()->code == PINFOLD_E_LARGER_THAN_BUDGET) {
    how.flags = PINFOLD_BYPASS; /* UCX's limits refuse nothing */
    lease = pinfold_acquire_with(cache->cache, request.address, request.bytes, access_of(prot), &how);
  }
  if (lease.pin == 0) return status_of(pinfold_last_error());
  if (request.opened) close_what_is_due(cache); /* regions that the new one replaces, as UCX does */
  const pinfold_registration *made = pinfold_detach(lease);
  *region = (ucs_rcache_region_t *)(uintptr_t)made->words[0];
  if (__atomic_load_n(&(*region)->priv, __ATOMIC_RELAXED) == 0) /* threads that hit do not write */
    __atomic_store_n(&(*region)->priv, (uintptr_t)made, __ATOMIC_RELAXED);
  return UCS_OK;
}

void hold_region(ucs_rcache_region_t *region) { __atomic_fetch_add(&region->refcount, 1, __ATOMIC_RELAXED); }

/* Users are alike: a lease ends only when no hold is left. Release: what this user did with the region comes before. */
static int drop_hold(ucs_rcache_region_t *region) {
  uint32_t count = __atomic_load_n(&region->refcount, __ATOMIC_RELAXED);
  while (count > refcount_without_holds) {
    if (__atomic_compare_exchange_n(&region->refcount, &count, count - 1, 1, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
      return 1;
  }
  return 0;
}

void put_region(ucs_rcache_t *cache, ucs_rcache_region_t *region) {
  if (drop_hold(region)) return;
  pinfold_release_registration((const void *)(uintptr_t)__atomic_load_n(&region->priv, __ATOMIC_RELAXED));
  if (__atomic_load_n(&cache->unmapped, __ATOMIC_RELAXED) > cache->params.max_unreleased) close_what_is_due(cache);
}

void invalidate_region(ucs_rcache_t *cache, ucs_rcache_region_t *region, ucs_rcache_invalidate_comp_func_t done,
                       void *arg) {
  struct completion *completion = malloc(sizeof *completion);
  if (completion == NULL) {
    report("ucx", "no memory to remember the callback of an invalidation");
  } else {
    *completion = (struct completion){.done = done, .arg = arg};
    pthread_mutex_lock(&cache->mutex);
    completion->next = state_of(region)->completions;
    state_of(region)->completions = completion;
    pthread_mutex_unlock(&cache->mutex);
  }
  pinfold_invalidate(cache->cache, (void *)region->super.start, region->super.end - region->super.start);
  close_what_is_due(cache);
}
