/* SPDX-License-Identifier: BSD-3-Clause */
/* libfabric's cache has 1024 regions unless the user wants more, and a registration takes longer than a look at all of
 * them. */
#include "libfabric/subscriptions.h"

#include <pthread.h>
#include <stdlib.h>

struct subscription {
  uint64_t base;
  uint64_t bytes;
  pinfold_lease lease;
};

static struct subscription *all;
static size_t count, room;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static int grow(void) {
  const size_t more = room == 0 ? 256 : 2 * room;
  struct subscription *larger = realloc(all, more * sizeof *larger);
  if (larger == NULL) return -1;
  all = larger;
  room = more;
  return 0;
}

int add_subscription(uint64_t base, uint64_t bytes, pinfold_lease lease) {
  pthread_mutex_lock(&mutex);
  const int failed = count == room ? grow() : 0;
  if (!failed) all[count++] = (struct subscription){base, bytes, lease};
  pthread_mutex_unlock(&mutex);
  return failed;
}

/* Returns the place of one with this range, of one that is not stale if there is such; `count`: none. */
static size_t place_of(uint64_t base, uint64_t bytes) {
  size_t place = count;
  for (size_t at = 0; at < count; ++at) {
    if (all[at].base != base || all[at].bytes != bytes) continue;
    place = at;
    if (!pinfold_is_stale(all[at].lease)) break;
  }
  return place;
}

pinfold_lease remove_subscription(uint64_t base, uint64_t bytes) {
  pinfold_lease lease = {0, NULL};
  pthread_mutex_lock(&mutex);
  const size_t place = place_of(base, bytes);
  if (place < count) {
    lease = all[place].lease;
    all[place] = all[--count];
  }
  pthread_mutex_unlock(&mutex);
  return lease;
}

size_t each_stale_subscription(uint64_t base, uint64_t bytes, void (*each)(uint64_t base, uint64_t bytes)) {
  size_t stale = 0;
  pthread_mutex_lock(&mutex);
  for (size_t at = 0; at < count; ++at) {
    const struct subscription *one = &all[at];
    if (one->base >= base + bytes || base >= one->base + one->bytes || !pinfold_is_stale(one->lease)) continue;
    ++stale;
    if (each != NULL) each(one->base, one->bytes);
  }
  pthread_mutex_unlock(&mutex);
  return stale;
}

void drop_subscriptions(void) {
  while (count > 0) pinfold_release(all[--count].lease);
  free(all);
  all = NULL;
  room = 0;
}
