/* SPDX-License-Identifier: BSD-3-Clause */
/* The contexts in which the program opens handles, and their caches. */
#ifndef PINFOLD_ADAPTERS_CUDA_CONTEXTS_H
#define PINFOLD_ADAPTERS_CUDA_CONTEXTS_H

#include "cuda/driver.h"

#include <pinfold/pinfold.h>

/* Never freed. */
struct context_cache {
  struct context_cache *next;
  cuda_context context;
  unsigned long long id; /* of the context; never used again by another one */
  open_function open;    /* the driver's, by which the cache opens */
  int ended;             /* the context is gone. Atomic */
  pinfold_cache *cache;
  pinfold_options options;
};

/* Returns the cache of the thread's current context for one of the driver's opens, which the first call makes; null: no
 * context, or no cache. */
struct context_cache *cache_of_current(open_function open);

/* Returns a lease on the memory of the handle; an empty one on failure, as pinfold_import. */
pinfold_lease open_in(const struct context_cache *cache, const ipc_handle *handle);

/* Closes the mappings that the program has closed, those of other contexts too: the driver may refuse to open memory
 * that another context of the device maps. Waits for closes by other threads. */
void close_idle(void);

/* Returns how many mappings the caches have closed so far. */
size_t closes_so_far(void);

/* Counts a handle that is opened without the cache. */
void count_passed_through(void);

/* Whether this thread is in a call that a cache makes. */
int is_called_by_cache(void);

#endif
