/* SPDX-License-Identifier: BSD-3-Clause */
/* Which registrations one memory region may serve for several callers. */
#ifndef PINFOLD_VERBS_RULES_H
#define PINFOLD_VERBS_RULES_H

#include <stdint.h>

/* Returns whether such a registration may be shared. Not where the program names the region in other calls (windows are
 * bound to the region itself), where addresses are offsets into the region, and where nothing is pinned. */
int may_share(unsigned access);

/* Returns the optional access flags, such as relaxed ordering: a region has exactly those that were asked for. */
unsigned optional_access(unsigned access);

/* The other flags as PINFOLD_ bits, and back. */
uint32_t access_from(unsigned access);
unsigned flags_from(uint32_t access);

#endif
