/* SPDX-License-Identifier: BSD-3-Clause */
/* The protection domains that the program registers memory with, and their caches: one for each set of optional access
 * flags. */
#ifndef PINFOLD_VERBS_DOMAINS_H
#define PINFOLD_VERBS_DOMAINS_H

#include <infiniband/verbs.h>
#include <pinfold/pinfold.h>

struct domain {
  struct domain *next;
  struct ibv_pd *pd;
  struct domain_cache *caches;
  const char *refusal;   /* why nothing of this domain is cached; null: it is. Atomic */
  size_t regions;        /* facades that the program has not deregistered. Atomic */
  size_t passed_through; /* registrations that did not go through a cache. Atomic */
  pinfold_options options;
};

/* Returns the domain of the pd, which the first call makes; null: no memory. It lives until forget_domain. */
struct domain *domain_of(struct ibv_pd *pd);

/* Returns the domain's cache for the optional flags, which the first call makes; null if there cannot be one. */
pinfold_cache *cache_of(struct domain *domain, unsigned optional);

/* Returns the regions of the pd that the program has not deregistered. */
size_t regions_of(struct ibv_pd *pd);

/* Destroys the caches of the pd, and closes all of their regions. Returns 0, or an errno with the caches kept. */
int forget_domain(struct ibv_pd *pd);

/* The same for all pds of a device. */
void forget_domains_of(const struct ibv_context *device);

#endif
