/* SPDX-License-Identifier: BSD-3-Clause */
/* The memory region that the program gets for a cached registration: a structure of its own, with the keys of the
 * shared one. */
#ifndef PINFOLD_VERBS_FACADE_H
#define PINFOLD_VERBS_FACADE_H

#include "verbs/domains.h"

struct facade {
  struct ibv_mr mr; /* first: the program has its address */
  struct domain *domain;
  pinfold_lease lease;
  struct ibv_mr *own; /* instead of a lease: a region that is not shared, since ibv_rereg_mr */
  unsigned access;
};

/* Returns an empty facade; null: no room. */
struct facade *new_facade(void);
void free_facade(struct facade *facade);

/* Returns the facade that `mr` is; null: it is one of the driver's. Takes no lock. */
struct facade *facade_of(struct ibv_mr *mr);

#endif
