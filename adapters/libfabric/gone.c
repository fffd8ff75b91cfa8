/* SPDX-License-Identifier: BSD-3-Clause */
#include "libfabric/gone.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>

struct gone {
  struct gone *next;
  uint64_t base;
  uint64_t bytes;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct gone *first; /* Atomic, so that a look at an empty list takes no lock */
static struct gone **end = &first;
static int everything_is_gone; /* memory for the list ran out; never reset. Atomic */
static int stops;
static pthread_t teller;
static void (*tell_of)(uint64_t base, uint64_t bytes);

static void remove_first(void) {
  struct gone *told = first;
  __atomic_store_n(&first, told->next, __ATOMIC_RELEASE);
  if (told->next == NULL) end = &first;
  free(told);
}

/* An element stays in the list until libfabric was told: until then its own cache may still have the memory. */
static void *tell_all(void *unused) {
  (void)unused;
  pthread_mutex_lock(&mutex);
  while (!stops) {
    if (first == NULL) {
      pthread_cond_wait(&changed, &mutex);
      continue;
    }
    const struct gone now = *first;
    pthread_mutex_unlock(&mutex);
    tell_of(now.base, now.bytes);
    pthread_mutex_lock(&mutex);
    remove_first();
  }
  pthread_mutex_unlock(&mutex);
  return NULL;
}

int gone_start(void (*tell)(uint64_t base, uint64_t bytes)) {
  tell_of = tell;
  stops = 0;
  return pthread_create(&teller, NULL, tell_all, NULL);
}

void gone_stop(void) {
  pthread_mutex_lock(&mutex);
  stops = 1;
  pthread_cond_signal(&changed);
  pthread_mutex_unlock(&mutex);
  pthread_join(teller, NULL);
  while (first != NULL) remove_first();
}

void gone_add(uint64_t base, uint64_t bytes) {
  struct gone *added = malloc(sizeof *added);
  if (added == NULL) {
    __atomic_store_n(&everything_is_gone, 1, __ATOMIC_RELEASE);
    return;
  }
  *added = (struct gone){.next = NULL, .base = base, .bytes = bytes};
  pthread_mutex_lock(&mutex);
  __atomic_store_n(end, added, __ATOMIC_RELEASE);
  end = &added->next;
  pthread_cond_signal(&changed);
  pthread_mutex_unlock(&mutex);
}

int gone_overlaps(uint64_t base, uint64_t bytes) {
  if (__atomic_load_n(&everything_is_gone, __ATOMIC_ACQUIRE)) return 1;
  if (__atomic_load_n(&first, __ATOMIC_ACQUIRE) == NULL) return 0;
  pthread_mutex_lock(&mutex);
  const struct gone *one = first;
  while (one != NULL && (one->base >= base + bytes || base >= one->base + one->bytes)) one = one->next;
  pthread_mutex_unlock(&mutex);
  return one != NULL;
}
