/* SPDX-License-Identifier: BSD-3-Clause */
#include "ucx/cache.h"

#include <stdlib.h>
#include <string.h>

static struct region_state *new_region(ucs_rcache_t *cache, const pinfold_open_request *what) {
  struct region_state *state;
  const size_t size = sizeof *state + cache->params.region_struct_size;
  if (posix_memalign((void **)&state, sizeof *state, size) != 0) return NULL;
  memset(state, 0, size);
  ucs_rcache_region_t *region = region_of(state);
  region->super.start = (uintptr_t)what->address;
  region->super.end = (uintptr_t)what->address + what->bytes;
  if ((what->access & PINFOLD_LOCAL_READ) != 0) region->prot |= PROT_READ;
  if ((what->access & PINFOLD_LOCAL_WRITE) != 0) region->prot |= PROT_WRITE;
  region->refcount = refcount_without_holds;
  region->status = UCS_INPROGRESS;
  region->flags = UCS_RCACHE_REGION_FLAG_PGTABLE;
  return state;
}

static void link_region(ucs_rcache_t *cache, struct region_state *state) {
  pthread_mutex_lock(&cache->mutex);
  state->next = &cache->regions;
  state->previous = cache->regions.previous;
  state->previous->next = state->next->previous = state;
  pthread_mutex_unlock(&cache->mutex);
}

static struct completion *unlink_region(ucs_rcache_t *cache, struct region_state *state) {
  pthread_mutex_lock(&cache->mutex);
  state->previous->next = state->next;
  state->next->previous = state->previous;
  struct completion *completions = state->completions;
  pthread_mutex_unlock(&cache->mutex);
  return completions;
}

/* The message is handed to other threads, so it is one that stays. */
static int refused(pinfold_error *failure, ucs_status_t status) {
  failure->native = status;
  failure->message = "UCX's mem_reg refused the memory";
  return status == UCS_ERR_NO_MEMORY || status == UCS_ERR_NO_RESOURCE ? PINFOLD_E_OUT_OF_RESOURCES
                                                                      : PINFOLD_E_DRIVER_ERROR;
}

static int open_region(void *self, const pinfold_open_request *what, pinfold_registration *made,
                       pinfold_error *failure) {
  ucs_rcache_t *cache = self;
  struct request *request = what->argument;
  struct region_state *state = new_region(cache, what);
  if (state == NULL) return refused(failure, UCS_ERR_NO_MEMORY);
  ucs_rcache_region_t *region = region_of(state);
  const int merged = what->address != request->address || what->bytes != request->bytes;
  region->status = cache->params.ops->mem_reg(cache->params.context, cache, request->arg, region,
                                              merged ? UCS_RCACHE_MEM_REG_HIDE_ERRORS : 0);
  if (region->status != UCS_OK) {
    const int code = refused(failure, region->status);
    free(state);
    return code;
  }
  region->flags |= UCS_RCACHE_REGION_FLAG_REGISTERED;
  link_region(cache, state);
  request->opened = 1;
  made->words[0] = (uintptr_t)region;
  return PINFOLD_OK;
}

static int close_region(void *self, const pinfold_registration *made, pinfold_error *failure) {
  (void)failure;
  ucs_rcache_t *cache = self;
  ucs_rcache_region_t *region = (ucs_rcache_region_t *)(uintptr_t)made->words[0];
  struct completion *completion = unlink_region(cache, state_of(region));
  cache->params.ops->mem_dereg(cache->params.context, cache, region);
  while (completion != NULL) {
    struct completion *next = completion->next;
    completion->done(completion->arg);
    free(completion);
    completion = next;
  }
  free(state_of(region));
  return PINFOLD_OK;
}

const pinfold_registrar ucx_registrar = {
    .size = sizeof ucx_registrar,
    .name = "ucx",
    .granularity = 1, /* UCX's alignment is rounded to by get_region, and may be less than a page */
    .access = PINFOLD_LOCAL_READ | PINFOLD_LOCAL_WRITE,
    .open = open_region,
    .close = close_region,
};
