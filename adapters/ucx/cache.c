/* SPDX-License-Identifier: BSD-3-Clause */
#include "ucx/cache.h"

#include "common/report.h"
#include "ucx/region.h"
#include "ucx/ucx.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void unmapped(ucm_event_type_t type, ucm_event_t *event, void *arg) {
  ucs_rcache_t *cache = arg;
  const int mapping = type == UCM_EVENT_VM_UNMAPPED;
  const void *address = mapping ? event->vm_unmapped.address : event->mem_type.address;
  const size_t bytes = mapping ? event->vm_unmapped.size : event->mem_type.size;
  pinfold_announce_gone(address, bytes);
  __atomic_fetch_add(&cache->unmapped, bytes, __ATOMIC_RELAXED);
}

static int is_valid(const ucs_rcache_params_t *params) {
  const size_t alignment = params->alignment;
  return params->region_struct_size >= sizeof(ucs_rcache_region_t) && (alignment & (alignment - 1)) == 0 &&
         alignment >= UCS_RCACHE_MIN_ALIGNMENT && alignment <= params->max_alignment;
}

/* The defaults of UCX's own cache, then its parameters, then the environment. */
static void read_options(const ucs_rcache_params_t *params, const char *name, pinfold_options *options) {
  default_options(options, "ucx");
  snprintf(options->name, sizeof options->name, "%s", name);
  options->merge = PINFOLD_MERGE_OVERLAPS;
  options->flags |= PINFOLD_SERIAL;
  options->max_bytes = params->max_size;
  options->max_count = params->max_regions;
  options->drain_timeout_ms = 0; /* UCX destroys regions in use */
  /* Memory of a device, or of another process: only UCX knows when it goes. */
  if ((params->ucm_events & UCM_EVENT_VM_UNMAPPED) == 0) options->monitor = PINFOLD_MONITOR_MANUAL;
  apply_environment(options, "ucx");
}

/* ---- All caches ---- */

static ucs_rcache_t *open_caches;
static pthread_mutex_t open_mutex = PTHREAD_MUTEX_INITIALIZER;

static void add(ucs_rcache_t *cache) {
  pthread_mutex_lock(&open_mutex);
  cache->next_open = open_caches;
  open_caches = cache;
  pthread_mutex_unlock(&open_mutex);
}

static void take_away(const ucs_rcache_t *cache) {
  pthread_mutex_lock(&open_mutex);
  ucs_rcache_t **at = &open_caches;
  while (*at != NULL && *at != cache) at = &(*at)->next_open;
  if (*at != NULL) *at = cache->next_open;
  pthread_mutex_unlock(&open_mutex);
}

/* A program may end without a call that destroys UCX's caches. */
__attribute__((destructor)) static void report_what_is_left(void) {
  if (is_forked_child()) return;
  pthread_mutex_lock(&open_mutex); /* other threads may still destroy theirs */
  for (const ucs_rcache_t *one = open_caches; one != NULL; one = one->next_open)
    if (one->prints_statistics) report_statistics("ucx", one->name, one->cache);
  pthread_mutex_unlock(&open_mutex);
}

const char adapter_client[] = "ucx";
const char *why_no_cache(void) {
  return dlopen("libucs.so.0", RTLD_LAZY | RTLD_NOLOAD) == NULL ? "the program loaded no UCX"
                                                                : "UCX made none: it registers no memory here";
}

/* ---- One cache ---- */

static ucs_status_t start(ucs_rcache_t *cache, const char *name) {
  pinfold_options options;
  read_options(&cache->params, name, &options);
  if (pinfold_create(&ucx_registrar, cache, &options, &cache->cache) != PINFOLD_OK) {
    report("ucx", "%s: %s", name, pinfold_last_error()->message);
    return UCS_ERR_NO_MEMORY;
  }
  cache->prints_statistics = wants_statistics(&options);
  snprintf(cache->name, sizeof cache->name, "%s", options.name);
  const ucs_status_t status =
      ucx()->set_event_handler(cache->params.ucm_events, cache->params.ucm_event_priority, unmapped, cache);
  if (status != UCS_OK) pinfold_destroy(cache->cache);
  return status;
}

ucs_status_t create_cache(const ucs_rcache_params_t *params, const char *name, ucs_rcache_t **made) {
  if (!is_valid(params)) return UCS_ERR_INVALID_PARAM;
  ucs_rcache_t *cache = calloc(1, sizeof *cache);
  if (cache == NULL) return UCS_ERR_NO_MEMORY;
  cache->params = *params;
  cache->regions.next = cache->regions.previous = &cache->regions;
  pthread_mutex_init(&cache->mutex, NULL);
  const ucs_status_t status = start(cache, name);
  if (status != UCS_OK) {
    free(cache);
    return status;
  }
  if ((params->flags & UCS_RCACHE_FLAG_PURGE_ON_FORK) != 0) purge_at_forks(cache);
  add(cache);
  *made = cache;
  return UCS_OK;
}

/* No thread may use the cache any more, so its regions stay. */
static void report_regions_in_use(ucs_rcache_t *cache) {
  for (struct region_state *state = cache->regions.next; state != &cache->regions; state = state->next) {
    ucs_rcache_region_t *region = region_of(state);
    char text[256] = "";
    if (cache->params.ops->dump_region != NULL)
      cache->params.ops->dump_region(cache->params.context, cache, region, text, sizeof text);
    report("ucx", "destroys a region in use: 0x%lx..0x%lx " UCS_RCACHE_PROT_FMT " %s", region->super.start,
           region->super.end, UCS_RCACHE_PROT_ARG(region->prot), text);
  }
}

void destroy_cache(ucs_rcache_t *cache) {
  take_away(cache);
  ucx()->unset_event_handler(cache->params.ucm_events, unmapped, cache);
  if ((cache->params.flags & UCS_RCACHE_FLAG_PURGE_ON_FORK) != 0) stop_purging(cache);
  (void)pinfold_flush(cache->cache);
  report_regions_in_use(cache);
  (void)pinfold_destroy(cache->cache); /* what is left open is reported by the sink */
  pthread_mutex_destroy(&cache->mutex);
  free(cache);
}
