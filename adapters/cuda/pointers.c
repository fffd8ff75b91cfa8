/* SPDX-License-Identifier: BSD-3-Clause */
#include "cuda/pointers.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct pointer {
  struct pointer *next;
  device_pointer at;
  const void *registration;
  const void *cache;
  size_t opens;
};

enum { chains = 256 };

static struct pointer *open_pointers[chains]; /* the newest first */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void lock(void) { pthread_mutex_lock(&mutex); }
static void unlock(void) { pthread_mutex_unlock(&mutex); }

static struct pointer **chain_of(device_pointer at) { return &open_pointers[(at * 0x9E3779B97F4A7C15u) >> 56]; }

struct pointer *new_pointer(void) { return calloc(1, sizeof(struct pointer)); }
void free_pointer(struct pointer *unused) { free(unused); }

void add_pointer(struct pointer *memory, device_pointer at, pinfold_lease lease, const void *cache) {
  const void *registration = pinfold_detach(lease);
  lock();
  struct pointer *one = *chain_of(at);
  while (one != NULL && (one->at != at || one->registration != registration)) one = one->next;
  if (one == NULL) {
    *memory = (struct pointer){*chain_of(at), at, registration, cache, 0};
    *chain_of(at) = one = memory;
    memory = NULL;
  }
  ++one->opens;
  unlock();
  free(memory);
}

/* Takes one open from the pointer to which the link leads. */
static const void *take_from(struct pointer **link) {
  struct pointer *one = *link;
  const void *registration = one->registration;
  if (--one->opens == 0) {
    *link = one->next;
    free(one);
  }
  return registration;
}

const void *take_pointer(device_pointer at) {
  lock();
  struct pointer **link = chain_of(at);
  while (*link != NULL && (*link)->at != at) link = &(*link)->next;
  const void *registration = *link != NULL ? take_from(link) : NULL;
  unlock();
  return registration;
}

const void *take_pointer_of(const void *cache) {
  const void *registration = NULL;
  lock();
  for (size_t i = 0; i < chains && registration == NULL; ++i) {
    struct pointer **link = &open_pointers[i];
    while (*link != NULL && (*link)->cache != cache) link = &(*link)->next;
    if (*link != NULL) registration = take_from(link);
  }
  unlock();
  return registration;
}

/* The driver does not survive fork(2): what its parent opened is not the child's. */
static void start_child(void) {
  memset(open_pointers, 0, sizeof open_pointers);
  unlock();
}

__attribute__((constructor)) static void survive_forks(void) { pthread_atfork(lock, unlock, start_child); }
