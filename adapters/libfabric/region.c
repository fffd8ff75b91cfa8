/* SPDX-License-Identifier: BSD-3-Clause */
/* What the program gets for a cached registration is a region of its own, with the key and the descriptor of the shared
 * one behind it. */
#include "libfabric/region.h"

#include "libfabric/cache.h"
#include "libfabric/rules.h"

#include <rdma/fi_errno.h>
#include <stdlib.h>

struct facade {
  struct fid_mr region; /* first: the program has its address */
  struct hooked_domain *hooked;
  pinfold_lease lease;
};

static int close_facade(struct fid *fid) {
  struct facade *facade = (struct facade *)fid;
  pinfold_release(facade->lease); /* a close that fails is the cache's to retry */
  __atomic_fetch_sub(&facade->hooked->regions, 1, __ATOMIC_RELAXED);
  free(facade);
  return 0;
}

static int refuse_bind(struct fid *fid, struct fid *other, uint64_t flags) {
  (void)fid, (void)other, (void)flags;
  return -FI_ENOSYS; /* other callers have the same region */
}

static int control_facade(struct fid *fid, int command, void *argument) {
  if (command == FI_ENABLE) return 0;
  if (command == FI_REFRESH) return -FI_ENOSYS;
  struct fid *shared = &region_of(((struct facade *)fid)->lease)->fid;
  return shared->ops->control(shared, command, argument);
}

static int open_ops(struct fid *fid, const char *name, uint64_t flags, void **ops, void *context) {
  struct fid *shared = &region_of(((struct facade *)fid)->lease)->fid;
  return shared->ops->ops_open(shared, name, flags, ops, context);
}

static struct fi_ops facade_ops = {
    .size = sizeof(struct fi_ops),
    .close = close_facade,
    .bind = refuse_bind,
    .control = control_facade,
    .ops_open = open_ops,
};

static struct fid_mr *in_front_of(struct facade *facade, struct hooked_domain *hooked, pinfold_lease lease,
                                  void *context) {
  const struct fid_mr *shared = region_of(lease);
  facade->region.fid.fclass = FI_CLASS_MR;
  facade->region.fid.context = context;
  facade->region.fid.ops = &facade_ops;
  facade->region.mem_desc = shared->mem_desc;
  facade->region.key = shared->key;
  facade->hooked = hooked;
  facade->lease = lease;
  __atomic_fetch_add(&hooked->regions, 1, __ATOMIC_RELAXED);
  return &facade->region;
}

/* Only where the user wants a limit, the call fails. Whatever else went wrong, the provider is asked for exactly what
 * the program wants: less than the cache asked for, or the provider's own error. */
static int is_limit(int code) { return code == PINFOLD_E_OVER_BUDGET || code == PINFOLD_E_LARGER_THAN_BUDGET; }

/* Returns 0, a negative fi_errno, or 1 if the provider has to be asked. */
static int register_shared(struct hooked_domain *hooked, const struct fi_mr_attr *what, struct fid_mr **region) {
  pinfold_cache *cache = cache_of(hooked);
  struct facade *facade = cache != NULL ? malloc(sizeof *facade) : NULL;
  if (facade == NULL) return 1;
  const struct iovec *where = what->mr_iov;
  const pinfold_lease lease = pinfold_acquire(cache, where->iov_base, where->iov_len, access_from(what->access));
  if (lease.pin == 0) {
    free(facade);
    return is_limit(pinfold_last_error()->code) ? -FI_ENOMEM : 1;
  }
  *region = in_front_of(facade, hooked, lease, what->context);
  return 0;
}

static int try_cache(struct hooked_domain *hooked, const struct fi_mr_attr *what, uint64_t flags,
                     struct fid_mr **region) {
  int outcome = 1;
  if (__atomic_load_n(&hooked->refusal, __ATOMIC_ACQUIRE) == NULL && may_share(what, flags, hooked->device_memory))
    outcome = register_shared(hooked, what, region);
  if (outcome == 1) __atomic_fetch_add(&hooked->passed_through, 1, __ATOMIC_RELAXED);
  return outcome;
}

int register_as_told(struct fid *fid, const struct fi_mr_attr *what, uint64_t flags, struct fid_mr **region) {
  struct hooked_domain *hooked = domain_of(fid);
  const int outcome = try_cache(hooked, what, flags, region);
  return outcome == 1 ? hooked->mr_ops->regattr(fid, what, flags, region) : outcome;
}

int register_vector(struct fid *fid, const struct iovec *vector, size_t count, uint64_t access, uint64_t offset,
                    uint64_t key, uint64_t flags, struct fid_mr **region, void *context) {
  struct hooked_domain *hooked = domain_of(fid);
  const struct fi_mr_attr what = {
      .mr_iov = vector, .iov_count = count, .access = access, .offset = offset, .context = context};
  const int outcome = try_cache(hooked, &what, flags, region);
  return outcome == 1 ? hooked->mr_ops->regv(fid, vector, count, access, offset, key, flags, region, context) : outcome;
}

int register_buffer(struct fid *fid, const void *buffer, size_t bytes, uint64_t access, uint64_t offset, uint64_t key,
                    uint64_t flags, struct fid_mr **region, void *context) {
  struct hooked_domain *hooked = domain_of(fid);
  const struct iovec where = {(void *)(uintptr_t)buffer, bytes};
  const struct fi_mr_attr what = {
      .mr_iov = &where, .iov_count = 1, .access = access, .offset = offset, .context = context};
  const int outcome = try_cache(hooked, &what, flags, region);
  return outcome == 1 ? hooked->mr_ops->reg(fid, buffer, bytes, access, offset, key, flags, region, context) : outcome;
}
