/* SPDX-License-Identifier: BSD-3-Clause */
/* libibverbs' functions as a program with this library preloaded sees them: in the versions of exports.map. */
#include "verbs/domains.h"
#include "verbs/facade.h"
#include "verbs/real.h"
#include "verbs/rules.h"

#include <errno.h>

static void show_region(struct facade *facade, const struct ibv_mr *of, void *address, size_t bytes) {
  facade->mr = *of;
  facade->mr.addr = address;
  facade->mr.length = bytes;
}

/* Only where the user wants a limit, the call fails. Whatever else went wrong, the driver is asked, and says why. */
static int is_limit(int code) { return code == PINFOLD_E_OVER_BUDGET || code == PINFOLD_E_LARGER_THAN_BUDGET; }

/* What a registration came to. */
enum outcome { is_shared, is_refused, passes_through };

static enum outcome share(struct facade *facade, struct ibv_pd *pd, void *address, size_t bytes, unsigned access) {
  facade->domain = domain_of(pd);
  if (facade->domain == NULL || !may_share(access)) return passes_through;
  pinfold_cache *cache = cache_of(facade->domain, optional_access(access));
  if (cache == NULL) return passes_through;
  facade->lease = pinfold_acquire(cache, address, bytes, access_from(access));
  if (facade->lease.pin == 0) return is_limit(pinfold_last_error()->code) ? is_refused : passes_through;
  const pinfold_registration *made = pinfold_registration_of(facade->lease);
  show_region(facade, (const struct ibv_mr *)(uintptr_t)made->words[0], address, bytes);
  facade->access = access;
  __atomic_fetch_add(&facade->domain->regions, 1, __ATOMIC_RELAXED);
  return is_shared;
}

static void count_passed_through(struct ibv_pd *pd) {
  struct domain *domain = domain_of(pd);
  if (domain != NULL) __atomic_fetch_add(&domain->passed_through, 1, __ATOMIC_RELAXED);
}

/* Returns a facade; or null, with `ask_driver` set if the driver has to be asked, otherwise errno. */
static struct ibv_mr *registered(struct ibv_pd *pd, void *address, size_t bytes, unsigned access, int *ask_driver) {
  struct facade *facade = new_facade();
  const enum outcome outcome = facade != NULL ? share(facade, pd, address, bytes, access) : passes_through;
  *ask_driver = outcome == passes_through;
  if (outcome == is_shared) return &facade->mr;
  if (facade != NULL) free_facade(facade);
  if (outcome == passes_through)
    count_passed_through(pd);
  else
    errno = ENOMEM;
  return NULL;
}

static struct ibv_mr *no_such_call(void) {
  errno = ENOSYS;
  return NULL;
}

PINFOLD_API struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t bytes, int access) {
  int ask_driver = 0;
  struct ibv_mr *mr = registered(pd, address, bytes, (unsigned)access, &ask_driver);
  if (!ask_driver) return mr;
  return real()->reg_mr != NULL ? real()->reg_mr(pd, address, bytes, access) : no_such_call();
}

PINFOLD_API struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t bytes, uint64_t iova,
                                            unsigned access) {
  int ask_driver = 1;
  struct ibv_mr *mr = NULL;
  if (iova == (uintptr_t)address)
    mr = registered(pd, address, bytes, access, &ask_driver);
  else
    count_passed_through(pd);
  if (!ask_driver) return mr;
  return real()->reg_mr_iova2 != NULL ? real()->reg_mr_iova2(pd, address, bytes, iova, access) : no_such_call();
}

PINFOLD_API struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *address, size_t bytes, uint64_t iova, int access) {
  int ask_driver = 1;
  struct ibv_mr *mr = NULL;
  if (iova == (uintptr_t)address)
    mr = registered(pd, address, bytes, (unsigned)access, &ask_driver);
  else
    count_passed_through(pd);
  if (!ask_driver) return mr;
  return real()->reg_mr_iova != NULL ? real()->reg_mr_iova(pd, address, bytes, iova, access) : no_such_call();
}

/* Gives back what is behind the facade. Returns 0, or an errno. */
static int release(struct facade *facade) {
  if (facade->own != NULL) {
    const int refused = real()->dereg_mr(facade->own);
    if (refused != 0) return refused;
  }
  pinfold_release(facade->lease); /* a close that fails is the cache's to retry */
  __atomic_fetch_sub(&facade->domain->regions, 1, __ATOMIC_RELAXED);
  return 0;
}

PINFOLD_API int ibv_dereg_mr(struct ibv_mr *mr) {
  struct facade *facade = facade_of(mr);
  if (facade == NULL) return real()->dereg_mr(mr);
  const int refused = release(facade);
  if (refused == 0) free_facade(facade);
  return refused;
}

/* The region that the program asks for cannot be shared: the facade gets one of its own. */
static enum outcome register_own(struct facade *facade, struct ibv_pd *pd, void *address, size_t bytes,
                                 unsigned access) {
  if (facade->domain == NULL) return is_refused;
  facade->own = real_register(pd, address, bytes, access);
  if (facade->own == NULL) return is_refused;
  show_region(facade, facade->own, address, bytes);
  facade->access = access;
  __atomic_fetch_add(&facade->domain->regions, 1, __ATOMIC_RELAXED);
  __atomic_fetch_add(&facade->domain->passed_through, 1, __ATOMIC_RELAXED);
  return is_shared;
}

static int replace(struct facade *facade, struct ibv_pd *pd, void *address, size_t bytes, unsigned access) {
  struct facade changed = {.own = NULL};
  enum outcome outcome = share(&changed, pd, address, bytes, access);
  if (outcome == passes_through) outcome = register_own(&changed, pd, address, bytes, access);
  if (outcome != is_shared) return IBV_REREG_MR_ERR_INPUT; /* the old region is valid */
  const int refused = release(facade);
  if (refused != 0) {
    release(&changed);
    errno = refused;
    return IBV_REREG_MR_ERR_INPUT;
  }
  changed.mr.context = facade->mr.context;
  *facade = changed;
  return 0;
}

PINFOLD_API int ibv_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *address, size_t bytes, int access) {
  struct facade *facade = facade_of(mr);
  if (facade == NULL) return real()->rereg_mr(mr, flags, pd, address, bytes, access);
  const int moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
  if ((flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0 || (moves && bytes == 0)) {
    errno = EINVAL;
    return IBV_REREG_MR_ERR_INPUT;
  }
  return replace(facade, (flags & IBV_REREG_MR_CHANGE_PD) != 0 ? pd : mr->pd, moves ? address : mr->addr,
                 moves ? bytes : mr->length,
                 (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0 ? (unsigned)access : facade->access);
}

PINFOLD_API int ibv_dealloc_pd(struct ibv_pd *pd) {
  const int busy = regions_of(pd) != 0 ? EBUSY : forget_domain(pd);
  return busy != 0 ? busy : real()->dealloc_pd(pd);
}

/* Some programs close the device with all that is open. */
PINFOLD_API int ibv_close_device(struct ibv_context *device) {
  forget_domains_of(device);
  return real()->close_device(device);
}
