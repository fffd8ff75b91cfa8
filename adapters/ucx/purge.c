/* SPDX-License-Identifier: BSD-3-Clause */
/* UCX asks for caches without a registration at a fork: drivers keep registered pages from the child (MADV_DONTFORK),
 * and with them whatever else lies in these pages. */
#include "ucx/cache.h"

#include <stdint.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct ucs_rcache *caches; /* guarded by the mutex */

static void before_fork(void) {
  pthread_mutex_lock(&mutex); /* until after the fork: the child gets it unlocked */
  for (struct ucs_rcache *cache = caches; cache != NULL; cache = cache->next) {
    pinfold_invalidate(cache->cache, NULL, SIZE_MAX);
    pinfold_progress(cache->cache);
  }
}

static void after_fork(void) { pthread_mutex_unlock(&mutex); }

/* The handlers that a process adds last run first: pinfold, which added its own with the first cache, is still usable.
 */
static void handle_forks(void) { pthread_atfork(before_fork, after_fork, after_fork); }

void purge_at_forks(struct ucs_rcache *cache) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, handle_forks);
  pthread_mutex_lock(&mutex);
  cache->next = caches;
  caches = cache;
  pthread_mutex_unlock(&mutex);
}

void stop_purging(struct ucs_rcache *cache) {
  pthread_mutex_lock(&mutex);
  struct ucs_rcache **at = &caches;
  while (*at != cache) at = &(*at)->next;
  *at = cache->next;
  pthread_mutex_unlock(&mutex);
}
