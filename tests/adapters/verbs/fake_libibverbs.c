/* SPDX-License-Identifier: BSD-3-Clause */
/* A libibverbs without devices, whose regions are numbered. The handle of a pd counts its regions. */
#include "fake_libibverbs.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <stdlib.h>

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

struct fake_verbs fake_verbs;

static struct ibv_mr *opened(struct ibv_pd *pd, void *address, size_t bytes, unsigned access) {
  int refused = __atomic_load_n(&fake_verbs.refusal, __ATOMIC_RELAXED);
  if ((access & fake_verbs.no_access) != 0) refused = EFAULT;
  struct ibv_mr *mr = refused == 0 ? calloc(1, sizeof *mr) : NULL;
  if (mr == NULL) {
    errno = refused;
    return NULL;
  }
  mr->context = pd->context;
  mr->pd = pd;
  mr->addr = address;
  mr->length = bytes;
  mr->lkey = mr->rkey = mr->handle = __atomic_add_fetch(&fake_verbs.opens, 1, __ATOMIC_SEQ_CST);
  __atomic_fetch_add(&fake_verbs.open, 1, __ATOMIC_SEQ_CST);
  __atomic_fetch_add(&pd->handle, 1, __ATOMIC_SEQ_CST);
  __atomic_store_n(&fake_verbs.last_access, access, __ATOMIC_RELAXED);
  return mr;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t bytes, int access) {
  return opened(pd, address, bytes, (unsigned)access);
}

struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *address, size_t bytes, uint64_t iova, int access) {
  (void)iova;
  return opened(pd, address, bytes, (unsigned)access);
}

struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t bytes, uint64_t iova, unsigned access) {
  (void)iova;
  return opened(pd, address, bytes, access);
}

int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *address, size_t bytes, int access) {
  (void)mr, (void)flags, (void)pd, (void)address, (void)bytes, (void)access;
  ++fake_verbs.rereg_calls;
  return 0;
}

int ibv_dereg_mr(struct ibv_mr *mr) {
  if (fake_verbs.close_refusal != 0) return fake_verbs.close_refusal;
  __atomic_fetch_sub(&fake_verbs.open, 1, __ATOMIC_SEQ_CST);
  __atomic_fetch_sub(&mr->pd->handle, 1, __ATOMIC_SEQ_CST);
  free(mr);
  return 0;
}

int ibv_dealloc_pd(struct ibv_pd *pd) {
  if (pd->handle != 0) return EBUSY;
  ++fake_verbs.pds_closed;
  return 0;
}

int ibv_close_device(struct ibv_context *device) {
  (void)device;
  ++fake_verbs.devices_closed;
  return 0;
}

enum ibv_fork_status ibv_is_fork_initialized(void) { return (enum ibv_fork_status)fake_verbs.fork_status; }
