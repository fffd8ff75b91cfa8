/* SPDX-License-Identifier: BSD-3-Clause */
#include "libfabric/cache.h"

#include "common/report.h"
#include "libfabric/rules.h"

#include <rdma/fi_errno.h>

enum { no_region_left = 270 }; /* FI_ENOMR, which headers before libfabric 1.20 lack */

static int refused_open(int native, pinfold_error *failure) {
  failure->native_kind = PINFOLD_NATIVE_LIBFABRIC;
  failure->native = native;
  failure->message = "the provider refused to register the memory";
  switch (native) {
    case FI_ENOMEM:
    case FI_ENOSPC:
    case FI_EAGAIN:
    case no_region_left: return PINFOLD_E_OUT_OF_RESOURCES;
    case FI_EFAULT: return PINFOLD_E_INVALID_RANGE;
    case FI_EPERM:
    case FI_EACCES: return PINFOLD_E_NOT_PERMITTED;
    default: return PINFOLD_E_DRIVER_ERROR;
  }
}

static int open_region(void *self, const pinfold_open_request *what, pinfold_registration *made,
                       pinfold_error *failure) {
  const struct hooked_domain *hooked = self;
  const struct iovec where = {what->address, what->bytes};
  const struct fi_mr_attr wanted = {.mr_iov = &where, .iov_count = 1, .access = flags_from(what->access)};
  struct fid_mr *region = NULL;
  const int refused = hooked->mr_ops->regattr(&hooked->domain->fid, &wanted, 0, &region);
  if (refused != 0) return refused_open(-refused, failure);
  made->words[0] = (uintptr_t)region;
  return PINFOLD_OK;
}

/* After any other failure the provider may have freed the region, so it is not touched again. */
static int stays_open(int refused) { return refused == -FI_EBUSY || refused == -FI_EAGAIN; }

static int close_region(void *self, const pinfold_registration *made, pinfold_error *failure) {
  const struct hooked_domain *hooked = self;
  struct fid_mr *region = (struct fid_mr *)(uintptr_t)made->words[0];
  const int refused = fi_close(&region->fid);
  if (!stays_open(refused)) {
    if (refused != 0)
      report("libfabric", "%s: a region may be lost: fi_close: %s", hooked->options.name, fi_strerror(-refused));
    return PINFOLD_OK;
  }
  failure->native_kind = PINFOLD_NATIVE_LIBFABRIC;
  failure->native = -refused;
  failure->message = "the provider cannot close the region yet";
  return PINFOLD_E_IN_USE_CONFLICT;
}

static pinfold_cache *make(struct hooked_domain *hooked) {
  static const pinfold_registrar registrar = {
      .size = sizeof registrar, .name = "libfabric", .open = open_region, .close = close_region};
  pinfold_cache *cache = NULL;
  if (pinfold_create(&registrar, hooked, &hooked->options, &cache) == PINFOLD_OK) return cache;
  const char *why = pinfold_last_error()->message;
  report("libfabric", "%s: %s, so registrations pass through", hooked->options.name, why);
  __atomic_store_n(&hooked->refusal, "pinfold made no cache", __ATOMIC_RELEASE);
  return NULL;
}

pinfold_cache *cache_of(struct hooked_domain *hooked) {
  pinfold_cache *cache = __atomic_load_n(&hooked->cache, __ATOMIC_ACQUIRE);
  if (cache != NULL) return cache;
  pthread_mutex_lock(&hooked->mutex);
  if (hooked->cache == NULL && hooked->refusal == NULL)
    __atomic_store_n(&hooked->cache, make(hooked), __ATOMIC_RELEASE);
  cache = hooked->cache;
  pthread_mutex_unlock(&hooked->mutex);
  return cache;
}

int end_cache(struct hooked_domain *hooked) {
  pinfold_cache *cache = hooked->cache;
  hooked->cache = NULL;
  return pinfold_destroy(cache) == PINFOLD_E_TIMED_OUT ? -FI_EBUSY : 0;
}

struct fid_mr *region_of(pinfold_lease lease) {
  const pinfold_registration *made = pinfold_registration_of(lease);
  return (struct fid_mr *)(uintptr_t)made->words[0];
}
