/* SPDX-License-Identifier: BSD-3-Clause */
/* The pointers that the program has from the cache and has not closed. */
#ifndef PINFOLD_ADAPTERS_CUDA_POINTERS_H
#define PINFOLD_ADAPTERS_CUDA_POINTERS_H

#include "cuda/driver.h"

#include <pinfold/pinfold.h>

/* One pointer; the driver counts how often it is opened, and so does this. */
struct pointer;

/* Returns memory for a pointer; null: there is none. */
struct pointer *new_pointer(void);
void free_pointer(struct pointer *unused);

/* Adds an open with its lease, for which there is memory. `cache` is the cache of the lease. */
void add_pointer(struct pointer *memory, device_pointer at, pinfold_lease lease, const void *cache);

/* Takes back one open, the newest. Returns the registration to release; null if the pointer is not from a cache. */
const void *take_pointer(device_pointer at);

/* Takes back one open of the cache; null: there is none. */
const void *take_pointer_of(const void *cache);

#endif
