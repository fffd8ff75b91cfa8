/* SPDX-License-Identifier: BSD-3-Clause */
/* What libfabric's cache has registered: each range with a lease of a cache whose registrar does nothing. */
#ifndef PINFOLD_LIBFABRIC_SUBSCRIPTIONS_H
#define PINFOLD_LIBFABRIC_SUBSCRIPTIONS_H

#include <pinfold/pinfold.h>

/* Adds a range. Returns 0, or -1 without memory. Several domains may have the same range. */
int add_subscription(uint64_t base, uint64_t bytes, pinfold_lease lease);

/* Removes one with exactly this range, one that is not stale if there is such: a stale one tells of another domain's
 * region, until that leaves too. Returns its lease; an empty one if there is none. */
pinfold_lease remove_subscription(uint64_t base, uint64_t bytes);

/* Calls `each`, if not null, for every subscription that overlaps the range and whose memory is gone. Returns how many.
 */
size_t each_stale_subscription(uint64_t base, uint64_t bytes, void (*each)(uint64_t base, uint64_t bytes));

/* Releases all leases. No other call may be under way. */
void drop_subscriptions(void);

#endif
