/* SPDX-License-Identifier: BSD-3-Clause */
/* A cache in UCX's sense, and the regions in it. */
#ifndef PINFOLD_UCX_CACHE_H
#define PINFOLD_UCX_CACHE_H

#include <pinfold/pinfold.h>
#include <pthread.h>
#include <ucs/memory/rcache.h>

struct completion {
  struct completion *next;
  ucs_rcache_invalidate_comp_func_t done;
  void *arg;
};

/* Lies in front of the region that UCX sees, whose size UCX decides. What each use reads is in fields of the region
 * that only UCX's own cache uses, beside the callers' own fields: `priv` is the registration, the same for all leases,
 * and `refcount` is 2 and the users without a lease of their own (UCX's assertions want no less than 2); both atomic.
 */
struct region_state {
  struct region_state *next, *previous; /* of the cache's regions; guarded by its mutex */
  struct completion *completions;       /* to be called when it is closed; guarded by the cache's mutex */
} __attribute__((aligned(64)));

enum { refcount_without_holds = 2 };

struct ucs_rcache {
  ucs_rcache_params_t params;
  pinfold_cache *cache;
  size_t unmapped; /* bytes, since the cache last closed what is due; atomic */
  pthread_mutex_t mutex;
  struct region_state regions;  /* the ring's head */
  struct ucs_rcache *next;      /* of all caches: purge.c */
  struct ucs_rcache *next_open; /* of all caches: cache.c */
  int prints_statistics;
  char name[sizeof((pinfold_options *)0)->name];
};

static inline ucs_rcache_region_t *region_of(struct region_state *state) { return (ucs_rcache_region_t *)(state + 1); }

static inline struct region_state *state_of(ucs_rcache_region_t *region) { return (struct region_state *)region - 1; }

/* The functions of the cache's registrar: UCX's mem_reg and mem_dereg. */
extern const pinfold_registrar ucx_registrar;

/* What one request passes to the registrar, and learns from it. */
struct request {
  void *address; /* rounded */
  size_t bytes;
  void *arg;  /* UCX's */
  int opened; /* the registrar was called, with success */
};

/* Closes a cache's registrations before a fork, between these two calls. */
void purge_at_forks(struct ucs_rcache *cache);
void stop_purging(struct ucs_rcache *cache);

#endif
