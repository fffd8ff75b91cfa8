/* SPDX-License-Identifier: BSD-3-Clause */
/* What libucs's functions do over pinfold: their arguments and results are those of ucs/memory/rcache.h, whose types
 * this header names without their fields. */
#ifndef PINFOLD_UCX_REGION_H
#define PINFOLD_UCX_REGION_H

#include <stddef.h>
#include <ucs/type/status.h>

struct ucs_rcache;
struct ucs_rcache_params;
struct ucs_rcache_region;

ucs_status_t create_cache(const struct ucs_rcache_params *params, const char *name, struct ucs_rcache **made);
void destroy_cache(struct ucs_rcache *cache);
ucs_status_t get_region(struct ucs_rcache *cache, void *address, size_t length, int prot, void *arg,
                        struct ucs_rcache_region **region);
void put_region(struct ucs_rcache *cache, struct ucs_rcache_region *region);
void hold_region(struct ucs_rcache_region *region);
void invalidate_region(struct ucs_rcache *cache, struct ucs_rcache_region *region, void (*done)(void *), void *arg);

#endif
