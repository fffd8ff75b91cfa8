/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * \file
 * The C interface of the registrar of memory that UCX maps, in the library pinfold-ucp.
 */
#ifndef PINFOLD_UCP_H
#define PINFOLD_UCP_H

#include <pinfold/pinfold.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ucp_context;
struct ucp_mem;

/** The registration of a UCP cache. */
typedef struct pinfold_ucp_registration {
  struct ucp_mem *memory; /**< a ucp_mem_h, for ucp_request_param_t; belongs to the cache */
  const void *key;        /**< the packed key, to be copied to peers, which call ucp_ep_rkey_unpack */
  size_t key_bytes;       /**< its length */
} pinfold_ucp_registration;

/**
 * Makes a cache of memory that is mapped with a UCP context, a ucp_context_h, which must outlive it. UCX is called on
 * many threads at once, unless the options have PINFOLD_SERIAL. `options` may be null. Errors:
 * PINFOLD_E_INVALID_ARGUMENT, PINFOLD_E_OUT_OF_RESOURCES.
 */
PINFOLD_API int pinfold_create_ucp(struct ucp_context *context, const pinfold_options *options, pinfold_cache **cache);

#ifdef __cplusplus
}
#endif

#endif /* PINFOLD_UCP_H */
