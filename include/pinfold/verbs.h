/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * \file
 * The C interface of the registrar of RDMA memory regions, in the library pinfold-verbs.
 */
#ifndef PINFOLD_VERBS_H
#define PINFOLD_VERBS_H

#include <pinfold/pinfold.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ibv_mr;
struct ibv_pd;

/** How regions are paged. */
enum pinfold_verbs_paging {
  PINFOLD_VERBS_PINNED = 0,    /**< every registration pins its pages */
  PINFOLD_VERBS_ON_DEMAND = 1, /**< each registration is a region without pinned pages, which is never stale */
  PINFOLD_VERBS_IMPLICIT = 2   /**< one region for the whole address space, local access only */
};

/** The options of the registrar; all 0: pinned pages, strict ordering, no windows. */
typedef struct pinfold_verbs_options {
  size_t size;               /**< sizeof the structure */
  uint32_t paging;           /**< a PINFOLD_VERBS_ number */
  uint32_t relaxed_ordering; /**< not 0: peers' writes may arrive in any order */
  uint32_t windows;          /**< not 0: memory windows may be bound to the regions */
  uint32_t prefetch_on_open; /**< not 0, with PINFOLD_VERBS_ON_DEMAND: prefetch each region, or refuse it */
} pinfold_verbs_options;

/** The registration of a verbs cache. */
typedef struct pinfold_verbs_registration {
  struct ibv_mr *mr; /**< belongs to the cache */
  uint32_t lkey;     /**< for ibv_sge */
  uint32_t rkey;     /**< for peers; means nothing without remote access */
} pinfold_verbs_registration;

/**
 * Makes a cache of regions of a protection domain, which must outlive it. `how` and `options` may be null. Errors:
 * PINFOLD_E_INVALID_ARGUMENT, PINFOLD_E_UNSUPPORTED (paging that the device lacks), PINFOLD_E_OUT_OF_RESOURCES,
 * PINFOLD_E_DRIVER_ERROR.
 */
PINFOLD_API int pinfold_create_verbs(struct ibv_pd *domain, const pinfold_verbs_options *how,
                                     const pinfold_options *options, pinfold_cache **cache);

#ifdef __cplusplus
}
#endif

#endif /* PINFOLD_VERBS_H */
