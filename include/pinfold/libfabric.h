/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * \file
 * The C interface of the registrar of libfabric memory regions, in the library pinfold-libfabric.
 */
#ifndef PINFOLD_LIBFABRIC_H
#define PINFOLD_LIBFABRIC_H

#include <pinfold/pinfold.h>

#ifdef __cplusplus
extern "C" {
#endif

struct fi_info;
struct fid_domain;
struct fid_ep;
struct fid_mr;

/** The options of the registrar; all 0: those of most domains. */
typedef struct pinfold_libfabric_options {
  size_t size;                  /**< sizeof the structure */
  struct fid_ep *endpoint;      /**< with FI_MR_ENDPOINT: the endpoint that regions are bound to */
  size_t max_bytes;             /**< largest region; 0: any */
  uint32_t accept_second_cache; /**< not 0: accept a provider that keeps registrations of its own */
  uint32_t reserved;            /**< 0 */
} pinfold_libfabric_options;

/** The registration of a libfabric cache. */
typedef struct pinfold_libfabric_registration {
  struct fid_mr *mr; /**< belongs to the cache */
  void *desc;        /**< for local operations */
  uint64_t key;      /**< for peers; means nothing without remote access */
  uint64_t origin;   /**< what a peer's address is counted from: the peer uses the address less this */
} pinfold_libfabric_registration;

/**
 * Makes a cache of regions of a domain, which was opened with `info` and must outlive the cache. `how` and `options` may
 * be null. Errors: PINFOLD_E_INVALID_ARGUMENT, PINFOLD_E_UNSUPPORTED, PINFOLD_E_OUT_OF_RESOURCES.
 */
PINFOLD_API int pinfold_create_libfabric(struct fid_domain *domain, const struct fi_info *info,
                                         const pinfold_libfabric_options *how, const pinfold_options *options,
                                         pinfold_cache **cache);

#ifdef __cplusplus
}
#endif

#endif /* PINFOLD_LIBFABRIC_H */
