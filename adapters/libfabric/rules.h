/* SPDX-License-Identifier: BSD-3-Clause */
/* Which registrations one region may serve for several callers. */
#ifndef PINFOLD_LIBFABRIC_RULES_H
#define PINFOLD_LIBFABRIC_RULES_H

#include <rdma/fi_domain.h>

/* Returns why no registration of the domain may be shared; null if they may. */
const char *refusal_of(const struct fi_info *info, uint32_t api_version);

/* Returns whether this registration may be shared, in a domain where that is possible. */
int may_share(const struct fi_mr_attr *what, uint64_t flags, int device_memory);

/* The access flags of fi_mr(3) as PINFOLD_ bits, and back. What RMA reads bring is written locally. */
uint32_t access_from(uint64_t flags);
uint64_t flags_from(uint32_t access);

#endif
