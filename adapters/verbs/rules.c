/* SPDX-License-Identifier: BSD-3-Clause */
#include "verbs/rules.h"

#include <infiniband/verbs.h>
#include <pinfold/pinfold.h>

enum {
  plain_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC
};

int may_share(unsigned access) { return (access & ~((unsigned)plain_access | IBV_ACCESS_OPTIONAL_RANGE)) == 0; }

unsigned optional_access(unsigned access) { return access & IBV_ACCESS_OPTIONAL_RANGE; }

uint32_t access_from(unsigned access) {
  uint32_t bits = PINFOLD_LOCAL_READ;
  if ((access & IBV_ACCESS_LOCAL_WRITE) != 0) bits |= PINFOLD_LOCAL_WRITE;
  if ((access & IBV_ACCESS_REMOTE_READ) != 0) bits |= PINFOLD_REMOTE_READ;
  if ((access & IBV_ACCESS_REMOTE_WRITE) != 0) bits |= PINFOLD_REMOTE_WRITE;
  if ((access & IBV_ACCESS_REMOTE_ATOMIC) != 0) bits |= PINFOLD_REMOTE_ATOMIC;
  return bits;
}

unsigned flags_from(uint32_t access) {
  unsigned flags = 0;
  if ((access & PINFOLD_LOCAL_WRITE) != 0) flags |= IBV_ACCESS_LOCAL_WRITE;
  if ((access & PINFOLD_REMOTE_READ) != 0) flags |= IBV_ACCESS_REMOTE_READ;
  if ((access & PINFOLD_REMOTE_WRITE) != 0) flags |= IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE;
  if ((access & PINFOLD_REMOTE_ATOMIC) != 0) flags |= IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_LOCAL_WRITE;
  return flags;
}
