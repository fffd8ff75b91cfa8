/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that is gone, of which libfabric has not been told yet. The thread that learns of it may hold libfabric's
 * locks, so another one tells. */
#ifndef PINFOLD_LIBFABRIC_GONE_H
#define PINFOLD_LIBFABRIC_GONE_H

#include <stdint.h>

/* Starts the thread, which calls `tell`. Returns 0 or an errno. */
int gone_start(void (*tell)(uint64_t base, uint64_t bytes));
/* Ends the thread, and forgets what is left. */
void gone_stop(void);

/* Adds memory. */
void gone_add(uint64_t base, uint64_t bytes);

/* Returns whether libfabric has not been told yet of memory that overlaps this. */
int gone_overlaps(uint64_t base, uint64_t bytes);

#endif
