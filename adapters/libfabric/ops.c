/* SPDX-License-Identifier: BSD-3-Clause */
#include "libfabric/ops.h"

#include <stdlib.h>
#include <string.h>

struct ops_copy {
  void *owner;
  void *table[];
};

static struct ops_copy *copy_around(const void *table) {
  return (struct ops_copy *)((char *)(size_t)table - offsetof(struct ops_copy, table));
}

void *copy_ops(const void *table, size_t least, void *owner) {
  const size_t size = *(const size_t *)table;
  struct ops_copy *copy = size < least ? NULL : malloc(sizeof *copy + size);
  if (copy == NULL) return NULL;
  copy->owner = owner;
  memcpy(copy->table, table, size);
  return copy->table;
}

void *owner_of(const void *table) { return copy_around(table)->owner; }

void free_ops(void *table) {
  if (table != NULL) free(copy_around(table));
}
