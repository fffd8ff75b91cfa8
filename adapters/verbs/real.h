/* SPDX-License-Identifier: BSD-3-Clause */
/* libibverbs' own functions, behind those of the preloaded library. */
#ifndef PINFOLD_VERBS_REAL_H
#define PINFOLD_VERBS_REAL_H

#include <infiniband/verbs.h>

/* verbs.h puts macros in front of them. */
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

struct real_verbs {
  struct ibv_mr *(*reg_mr)(struct ibv_pd *pd, void *address, size_t bytes, int access);
  struct ibv_mr *(*reg_mr_iova)(struct ibv_pd *pd, void *address, size_t bytes, uint64_t iova, int access);
  struct ibv_mr *(*reg_mr_iova2)(struct ibv_pd *pd, void *address, size_t bytes, uint64_t iova, unsigned access);
  int (*rereg_mr)(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *address, size_t bytes, int access);
  int (*dereg_mr)(struct ibv_mr *mr);
  int (*dealloc_pd)(struct ibv_pd *pd);
  int (*close_device)(struct ibv_context *device);
  enum ibv_fork_status (*is_fork_initialized)(void);
};

/* Returns the functions; those that this libibverbs lacks are null. The program has called one, so it is loaded. */
const struct real_verbs *real(void);

/* Registers by the newest call that there is: only the newer ones know optional access. */
struct ibv_mr *real_register(struct ibv_pd *pd, void *address, size_t bytes, unsigned access);

#endif
