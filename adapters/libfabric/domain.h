/* SPDX-License-Identifier: BSD-3-Clause */
/* Domains of other providers, whose registrations go through a cache of pinfold's where that is possible. */
#ifndef PINFOLD_LIBFABRIC_DOMAIN_H
#define PINFOLD_LIBFABRIC_DOMAIN_H

#include <pinfold/pinfold.h>
#include <pthread.h>
#include <rdma/fi_domain.h>

struct hooked_domain {
  struct hooked_domain *next; /* of all */
  struct fid_domain *domain;
  struct fi_ops *fid_ops; /* the provider's */
  struct fi_ops_domain *ops;
  struct fi_ops_mr *mr_ops;
  struct fi_ops *own_fid_ops; /* copies with operations replaced */
  struct fi_ops_domain *own_ops;
  struct fi_ops_mr *own_mr_ops;
  const char *refusal; /* why nothing of this domain is cached; null: it is. Atomic */
  int device_memory;   /* whether registrations name the kind of memory */
  pinfold_options options;
  pthread_mutex_t mutex; /* of making the cache */
  pinfold_cache *cache;  /* null: not made yet. Atomic */
  size_t regions;        /* of the cache that the program has not closed. Atomic */
  size_t passed_through; /* registrations that did not go through the cache. Atomic */
};

/* Replaces operations of a domain that was just opened, until it is closed. Where that fails, the domain stays as it
 * is, and a line on stderr says so. */
void hook_domain(struct fid_domain *domain, const struct fi_info *info, uint32_t api_version);

/* Returns the hooked domain whose operations `fid` has. */
struct hooked_domain *domain_of(struct fid *fid);

#endif
