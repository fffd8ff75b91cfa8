/* SPDX-License-Identifier: BSD-3-Clause */
#include "verbs/domains.h"

#include "common/report.h"
#include "verbs/real.h"
#include "verbs/rules.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct domain_cache {
  struct domain_cache *next;
  const struct domain *domain;
  unsigned optional;
  pinfold_cache *cache;
};

static struct domain *domains;
static pthread_mutex_t mutex =
    PTHREAD_MUTEX_INITIALIZER; /* of the lists; not held while the driver registers memory, or deregisters it */

static void lock(void) { pthread_mutex_lock(&mutex); }
static void unlock(void) { pthread_mutex_unlock(&mutex); }

/* ---- The registrar ---- */

static int refused_open(int native, pinfold_error *failure) {
  failure->native_kind = PINFOLD_NATIVE_POSIX;
  failure->native = native;
  failure->message = "the driver refused to register the memory";
  switch (native) {
    case ENOMEM:
    case EAGAIN: return PINFOLD_E_OUT_OF_RESOURCES;
    case EFAULT: return PINFOLD_E_INVALID_RANGE;
    case EPERM:
    case EACCES: return PINFOLD_E_NOT_PERMITTED;
    default: return PINFOLD_E_DRIVER_ERROR;
  }
}

static int open_region(void *self, const pinfold_open_request *what, pinfold_registration *made,
                       pinfold_error *failure) {
  const struct domain_cache *cache = self;
  struct ibv_mr *mr =
      real_register(cache->domain->pd, what->address, what->bytes, flags_from(what->access) | cache->optional);
  if (mr == NULL) return refused_open(errno, failure);
  made->words[0] = (uintptr_t)mr;
  return PINFOLD_OK;
}

static int close_region(void *self, const pinfold_registration *made, pinfold_error *failure) {
  (void)self;
  const int refused = real()->dereg_mr((struct ibv_mr *)(uintptr_t)made->words[0]);
  if (refused == 0) return PINFOLD_OK;
  failure->native_kind = PINFOLD_NATIVE_POSIX;
  failure->native = refused;
  failure->message = "the driver refused to deregister the memory";
  return PINFOLD_E_IN_USE_CONFLICT;
}

/* ---- Domains ---- */

/* With MADV_DONTFORK, memory that a cache keeps registered would be missing in children. */
static const char *refusal_here(void) {
  if (real()->is_fork_initialized != NULL && real()->is_fork_initialized() == IBV_FORK_ENABLED)
    return "children do not inherit registered memory (ibv_fork_init)";
  return NULL;
}

static struct domain *make_domain(struct ibv_pd *pd) {
  struct domain *made = calloc(1, sizeof *made);
  if (made == NULL) return NULL;
  made->pd = pd;
  made->refusal = refusal_here();
  default_options(&made->options, "verbs");
  apply_environment(&made->options, "verbs");
  snprintf(made->options.name, sizeof made->options.name, "%.40s/pd%u",
           pd->context != NULL && pd->context->device != NULL ? pd->context->device->name : "", pd->handle);
  made->next = domains;
  domains = made;
  return made;
}

struct domain *domain_of(struct ibv_pd *pd) {
  lock();
  struct domain *found = domains;
  while (found != NULL && found->pd != pd) found = found->next;
  if (found == NULL) found = make_domain(pd);
  unlock();
  return found;
}

static struct domain_cache *make_cache(struct domain *domain, unsigned optional) {
  static const pinfold_registrar registrar = {
      .size = sizeof registrar, .name = "verbs", .open = open_region, .close = close_region};
  struct domain_cache *made = calloc(1, sizeof *made);
  if (made == NULL) return NULL;
  made->domain = domain;
  made->optional = optional;
  if (pinfold_create(&registrar, made, &domain->options, &made->cache) == PINFOLD_OK) {
    made->next = domain->caches;
    domain->caches = made;
    return made;
  }
  report("verbs", "%s: %s, so registrations pass through", domain->options.name, pinfold_last_error()->message);
  domain->refusal = "pinfold made no cache";
  free(made);
  return NULL;
}

pinfold_cache *cache_of(struct domain *domain, unsigned optional) {
  lock();
  struct domain_cache *found = domain->caches;
  while (found != NULL && found->optional != optional) found = found->next;
  if (found == NULL && domain->refusal == NULL) found = make_cache(domain, optional);
  unlock();
  return found != NULL ? found->cache : NULL;
}

/* ---- Their end ---- */

size_t regions_of(struct ibv_pd *pd) {
  lock();
  const struct domain *found = domains;
  while (found != NULL && found->pd != pd) found = found->next;
  const size_t regions = found != NULL ? found->regions : 0;
  unlock();
  return regions;
}

static void report_passed_through(const struct domain *domain) {
  if (wants_statistics(&domain->options))
    report("verbs", "%s: passed_through=%zu%s%s", domain->options.name, domain->passed_through,
           domain->refusal != NULL ? ": " : "", domain->refusal != NULL ? domain->refusal : "");
}

/* Returns EBUSY if a thread is still in the driver: `drop` must not be called then. */
static int destroy_caches(struct domain *domain) {
  int outcome = 0;
  for (struct domain_cache *one = domain->caches; one != NULL; one = domain->caches) {
    domain->caches = one->next;
    if (pinfold_destroy(one->cache) == PINFOLD_E_TIMED_OUT)
      outcome = EBUSY; /* the thread still uses `one` */
    else
      free(one);
  }
  return outcome;
}

static struct domain *take(int (*wanted)(const struct domain *, const void *), const void *key) {
  lock();
  struct domain **at = &domains;
  while (*at != NULL && !wanted(*at, key)) at = &(*at)->next;
  struct domain *taken = *at;
  if (taken != NULL) *at = taken->next;
  unlock();
  return taken;
}

static int end(struct domain *domain) {
  const int outcome = destroy_caches(domain);
  report_passed_through(domain);
  if (outcome == 0 && domain->regions == 0) /* otherwise facades that are left still know it */
    free(domain);
  return outcome;
}

static int has_pd(const struct domain *domain, const void *pd) { return domain->pd == pd; }
static int has_device(const struct domain *domain, const void *device) { return domain->pd->context == device; }

int forget_domain(struct ibv_pd *pd) {
  struct domain *domain = take(has_pd, pd);
  return domain != NULL ? end(domain) : 0;
}

void forget_domains_of(const struct ibv_context *device) {
  for (struct domain *one = take(has_device, device); one != NULL; one = take(has_device, device)) end(one);
}

/* ---- The process ---- */

const char adapter_client[] = "verbs";
const char *why_no_cache(void) { return "the program registered no memory with libibverbs"; }

/* A program may end without deallocating its pds. */
__attribute__((destructor)) static void report_what_is_left(void) {
  for (const struct domain *one = domains; one != NULL; one = one->next) {
    for (const struct domain_cache *cache = one->caches; cache != NULL && wants_statistics(&one->options);
         cache = cache->next)
      report_statistics("verbs", one->options.name, cache->cache);
    report_passed_through(one);
  }
}

/* A child may register memory too, though another thread forked in between. */
__attribute__((constructor)) static void survive_forks(void) { pthread_atfork(lock, unlock, unlock); }
