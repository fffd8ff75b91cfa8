/* SPDX-License-Identifier: BSD-3-Clause */
#include "module.h"

#include "component.h"
#include "parameters.h"
#include "registrar.h"
#include "report.h"

#include "opal/runtime/opal_params.h"
#include "opal/util/sys_limits.h"

#include <stdio.h>
#include <stdlib.h>

struct module {
  mca_rcache_base_module_t super; /* first: Open MPI hands out pointers to it */
  struct pinfold_openmpi_btl btl;
  pinfold_cache *cache;
  bool prints_statistics;
};

static struct module *of(mca_rcache_base_module_t *super) { return (struct module *)super; }

/* A failure of the BTL's reaches its caller with the BTL's own code, except the one after which callers evict. */
static int opal_code_of(const pinfold_error *failure) {
  switch (failure->code) {
    case PINFOLD_E_OVER_BUDGET:
    case PINFOLD_E_LARGER_THAN_BUDGET:
    case PINFOLD_E_OUT_OF_RESOURCES: return OPAL_ERR_OUT_OF_RESOURCE;
    default: break;
  }
  if (failure->native != 0) return failure->native;
  switch (failure->code) {
    case PINFOLD_E_INVALID_RANGE:
    case PINFOLD_E_INVALID_ARGUMENT: return OPAL_ERR_BAD_PARAM;
    case PINFOLD_E_NOT_PERMITTED: return OPAL_ERR_PERM;
    default: return OPAL_ERROR;
  }
}

static int last_failure(void) { return opal_code_of(pinfold_last_error()); }

static int hand_out(pinfold_lease lease, mca_rcache_base_registration_t **registration) {
  const void *detached = pinfold_detach(lease);
  if (detached == NULL) return last_failure();
  *registration = pinfold_openmpi_of_detached(detached);
  return OPAL_SUCCESS;
}

/* Rounds out to pages, for remote access too: BTLs register each element of a strided transfer, and grdma shares a page
 * among them. What is no range stays as it is, for the library to refuse. */
static size_t round_out(void **address, size_t bytes) {
  const uintptr_t page = (uintptr_t)opal_getpagesize(), from = (uintptr_t)*address;
  const uintptr_t first = from & ~(page - 1), end = (from + bytes + page - 1) & ~(page - 1);
  if (bytes == 0 || bytes > PTRDIFF_MAX || end <= from) return bytes;
  *address = (char *)*address - (from - first);
  return end - first;
}

/* A registration with the flag PERSIST stays for as long as it is in use, as all do. */
static pinfold_lease acquire(pinfold_cache *cache, const void *address, size_t bytes, uint32_t flags, int32_t access) {
  if (flags == 0) return pinfold_acquire(cache, address, bytes, pinfold_openmpi_access(access));
  pinfold_acquire_options options = {.size = sizeof options, .argument = &flags};
  if (flags & MCA_RCACHE_FLAGS_CACHE_BYPASS) options.flags = PINFOLD_BYPASS;
  return pinfold_acquire_with(cache, address, bytes, pinfold_openmpi_access(access), &options);
}

static int register_memory(mca_rcache_base_module_t *super, void *address, size_t bytes, uint32_t flags, int32_t access,
                           mca_rcache_base_registration_t **registration) {
  *registration = NULL;
  bytes = round_out(&address, bytes);
  const pinfold_lease lease = acquire(of(super)->cache, address, bytes, flags, access);
  return lease.pin == 0 ? last_failure() : hand_out(lease, registration);
}

static int deregister_memory(mca_rcache_base_module_t *super, mca_rcache_base_registration_t *registration) {
  (void)super;
  const void *detached = pinfold_openmpi_detached_of(registration);
  return pinfold_release_registration(detached) == PINFOLD_OK ? OPAL_SUCCESS : last_failure();
}

static int find(mca_rcache_base_module_t *super, void *address, size_t bytes,
                mca_rcache_base_registration_t **registration) {
  *registration = NULL;
  bytes = round_out(&address, bytes);
  const pinfold_lease lease = pinfold_find(of(super)->cache, address, bytes, PINFOLD_LOCAL_READ);
  return lease.pin == 0 ? OPAL_SUCCESS : hand_out(lease, registration);
}

/* Open MPI's patcher calls this before memory goes, on any thread, perhaps inside an allocator. After any other result
 * it ends the job. */
static int invalidate_range(mca_rcache_base_module_t *super, void *address, size_t bytes) {
  (void)super;
  pinfold_announce_gone(address, bytes);
  return OPAL_SUCCESS;
}

static bool evict(mca_rcache_base_module_t *super) { return pinfold_evict(of(super)->cache, 1) > 0; }

static void finalize(mca_rcache_base_module_t *super) {
  struct module *own = of(super);
  if (own->prints_statistics) {
    pinfold_flush(own->cache);
    pinfold_openmpi_print_statistics(own->cache);
  }
  pinfold_destroy(own->cache);
}

/* After pinfold_destroy, or later, when the last thread has left the BTL. */
static void finished(void *btl) {
  struct module *own = (struct module *)((char *)btl - offsetof(struct module, btl));
  OBJ_DESTRUCT(&own->super.lock);
  free(own);
}

static struct module *allocate(const mca_rcache_base_resources_t *resources) {
  struct module *made = calloc(1, sizeof *made);
  if (made == NULL) return NULL;
  made->super.rcache_component = &mca_rcache_pinfold_component;
  made->super.rcache_register = register_memory;
  made->super.rcache_deregister = deregister_memory;
  made->super.rcache_find = find;
  made->super.rcache_invalidate_range = invalidate_range;
  made->super.rcache_finalize = finalize;
  made->super.rcache_evict = evict;
  OBJ_CONSTRUCT(&made->super.lock, opal_mutex_t);
  made->btl.module = &made->super;
  made->btl.calls = *resources;
  made->btl.calls.cache_name = NULL; /* the caller frees it */
  return made;
}

static void read_options(struct module *own, const char *name, pinfold_options *options) {
  pinfold_openmpi_read_options(options);
  snprintf(options->name, sizeof options->name, "%s", name == NULL ? "openmpi" : name);
  if (opal_leave_pinned == 0 && !opal_leave_pinned_pipeline) options->flags |= PINFOLD_NO_RETAIN; /* mpi_leave_pinned */
  own->prints_statistics = (options->flags & PINFOLD_STATISTICS_AT_EXIT) != 0;
  options->flags &= ~(uint32_t)PINFOLD_STATISTICS_AT_EXIT; /* finalize prints more than this event has */
  options->sink = pinfold_openmpi_report;
}

static bool was_asked;

bool pinfold_openmpi_was_asked(void) { return was_asked; }

mca_rcache_base_module_t *pinfold_openmpi_make_module(mca_rcache_base_resources_t *resources) {
  was_asked = true;
  struct module *made = allocate(resources);
  if (made == NULL) return NULL;
  pinfold_options options;
  read_options(made, resources->cache_name, &options);
  const pinfold_registrar registrar = {.size = sizeof registrar,
                                       .name = "openmpi",
                                       .granularity = 1, /* register_memory rounds */
                                       .open = pinfold_openmpi_open,
                                       .close = pinfold_openmpi_close,
                                       .finished = finished};
  if (pinfold_create(&registrar, &made->btl, &options, &made->cache) == PINFOLD_OK) return &made->super;
  opal_output(0, "pinfold openmpi: there is no cache: %s", pinfold_last_error()->message);
  finished(&made->btl);
  return NULL;
}
