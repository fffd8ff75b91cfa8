/* SPDX-License-Identifier: BSD-3-Clause */
#include "libfabric/domain.h"

#include "common/report.h"
#include "libfabric/cache.h"
#include "libfabric/ops.h"
#include "libfabric/region.h"
#include "libfabric/rules.h"

#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>

struct hooked_domain *domain_of(struct fid *fid) { return owner_of(((struct fid_domain *)fid)->mr); }

static struct hooked_domain *domains;
static pthread_mutex_t domains_mutex = PTHREAD_MUTEX_INITIALIZER;

static void add(struct hooked_domain *hooked) {
  pthread_mutex_lock(&domains_mutex);
  hooked->next = domains;
  domains = hooked;
  pthread_mutex_unlock(&domains_mutex);
}

static void take_away(const struct hooked_domain *hooked) {
  pthread_mutex_lock(&domains_mutex);
  struct hooked_domain **at = &domains;
  while (*at != NULL && *at != hooked) at = &(*at)->next;
  if (*at != NULL) *at = hooked->next;
  pthread_mutex_unlock(&domains_mutex);
}

static void drop(struct hooked_domain *hooked) {
  free_ops(hooked->own_fid_ops);
  free_ops(hooked->own_ops);
  free_ops(hooked->own_mr_ops);
  pthread_mutex_destroy(&hooked->mutex);
  free(hooked);
}

static void install(struct hooked_domain *hooked) {
  hooked->domain->fid.ops = hooked->own_fid_ops;
  hooked->domain->ops = hooked->own_ops;
  hooked->domain->mr = hooked->own_mr_ops;
}

static void uninstall(struct hooked_domain *hooked) {
  hooked->domain->fid.ops = hooked->fid_ops;
  hooked->domain->ops = hooked->ops;
  hooked->domain->mr = hooked->mr_ops;
}

static void report_passed_through(const struct hooked_domain *hooked) {
  if (wants_statistics(&hooked->options))
    report("libfabric", "%s: passed_through=%zu%s%s", hooked->options.name, hooked->passed_through,
           hooked->refusal != NULL ? ": " : "", hooked->refusal != NULL ? hooked->refusal : "");
}

/* A program may end without closing its domains. */
__attribute__((destructor)) static void report_what_is_left(void) {
  if (is_forked_child()) return;
  pthread_mutex_lock(&domains_mutex); /* other threads may still close theirs */
  for (const struct hooked_domain *one = domains; one != NULL; one = one->next) {
    if (one->cache != NULL && wants_statistics(&one->options))
      report_statistics("libfabric", one->options.name, one->cache);
    report_passed_through(one);
  }
  pthread_mutex_unlock(&domains_mutex);
}

const char adapter_client[] = "libfabric";
const char *why_no_cache(void) { return "the program opened no domain of libfabric under the hook"; }

static int close_domain(struct fid *fid) {
  struct hooked_domain *hooked = domain_of(fid);
  if (hooked->regions != 0) {
    report("libfabric", "%s: the program closes the domain before %zu of its regions", hooked->options.name,
           hooked->regions);
    return -FI_EBUSY;
  }
  take_away(hooked); /* a report at exit must not read a cache that ends */
  int refused = hooked->cache != NULL ? end_cache(hooked) : 0;
  if (refused == 0) {
    uninstall(hooked);
    refused = fid->ops->close(fid);
    if (refused != 0) install(hooked);
  }
  if (refused != 0) {
    add(hooked);
    return refused;
  }
  report_passed_through(hooked);
  drop(hooked);
  return 0;
}

static void stop_sharing(struct hooked_domain *hooked, const char *refusal) {
  __atomic_store_n(&hooked->refusal, refusal, __ATOMIC_RELEASE);
}

/* With an event queue, a registration ends in an event: fi_domain(3). */
static int bind_domain(struct fid *fid, struct fid *other, uint64_t flags) {
  struct hooked_domain *hooked = domain_of(fid);
  const int refused = hooked->fid_ops->bind(fid, other, flags);
  if (refused == 0 && (flags & FI_REG_MR) != 0) stop_sharing(hooked, "registrations are asynchronous (FI_REG_MR)");
  return refused;
}

static int open_counter(struct fid_domain *domain, struct fi_cntr_attr *attr, struct fid_cntr **counter,
                        void *context) {
  struct hooked_domain *hooked = domain_of(&domain->fid);
  const int refused = hooked->ops->cntr_open(domain, attr, counter, context);
  if (refused == 0) stop_sharing(hooked, "the program has counters, which may be bound to regions (FI_RMA_EVENT)");
  return refused;
}

static void set_options(struct hooked_domain *hooked, const struct fi_info *info) {
  default_options(&hooked->options, "libfabric");
  apply_environment(&hooked->options, "libfabric");
  const char *name = info->domain_attr->name;
  const char *provider = info->fabric_attr != NULL ? info->fabric_attr->prov_name : NULL;
  snprintf(hooked->options.name, sizeof hooked->options.name, "%.31s/%.31s", provider != NULL ? provider : "",
           name != NULL ? name : "");
  if (info->domain_attr->threading != FI_THREAD_SAFE)
    hooked->options.flags &= ~(uint32_t)PINFOLD_REAPER; /* the program serializes its calls of the domain */
}

static struct hooked_domain *hooked_of(struct fid_domain *domain) {
  struct hooked_domain *hooked = calloc(1, sizeof *hooked);
  if (hooked == NULL) return NULL;
  pthread_mutex_init(&hooked->mutex, NULL);
  hooked->domain = domain;
  hooked->fid_ops = domain->fid.ops;
  hooked->ops = domain->ops;
  hooked->mr_ops = domain->mr;
  hooked->own_fid_ops = copy_ops(hooked->fid_ops, offsetof(struct fi_ops, control), hooked);
  hooked->own_ops = copy_ops(hooked->ops, offsetof(struct fi_ops_domain, poll_open), hooked);
  hooked->own_mr_ops = copy_ops(hooked->mr_ops, sizeof(struct fi_ops_mr), hooked);
  if (hooked->own_fid_ops != NULL && hooked->own_ops != NULL && hooked->own_mr_ops != NULL) return hooked;
  drop(hooked);
  return NULL;
}

void hook_domain(struct fid_domain *domain, const struct fi_info *info, uint32_t api_version) {
  struct hooked_domain *hooked = hooked_of(domain);
  if (hooked == NULL) {
    report("libfabric", "no memory to hook a domain: its registrations pass through");
    return;
  }
  hooked->own_fid_ops->close = close_domain;
  hooked->own_fid_ops->bind = bind_domain;
  if ((info->caps & FI_RMA_EVENT) != 0) hooked->own_ops->cntr_open = open_counter;
  hooked->own_mr_ops->reg = register_buffer;
  hooked->own_mr_ops->regv = register_vector;
  hooked->own_mr_ops->regattr = register_as_told;
  hooked->refusal = refusal_of(info, api_version);
  hooked->device_memory = (info->caps & FI_HMEM) != 0;
  set_options(hooked, info);
  install(hooked);
  add(hooked);
}
