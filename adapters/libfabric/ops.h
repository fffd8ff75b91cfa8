/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables of operations of libfabric's objects, copied so that single operations can be replaced. A table begins with
 * its size; what a newer libfabric has beyond the table known here is copied too. */
#ifndef PINFOLD_LIBFABRIC_OPS_H
#define PINFOLD_LIBFABRIC_OPS_H

#include <stddef.h>

/* Returns a copy of the table, which remembers its owner. Null if the table has fewer than `least` bytes, or there is
 * no memory. */
void *copy_ops(const void *table, size_t least, void *owner);
/* Returns the owner of a copy. */
void *owner_of(const void *table);
/* Frees a copy; null: nothing. */
void free_ops(void *table);

#endif
