/* SPDX-License-Identifier: BSD-3-Clause */
/* Threads register and replace buffers, of which a device has room for a few, for some seconds. A registration keeps
 * the stamp that the memory had when it was registered: a stale one has another than the memory. pressure <threads>
 * <seconds> */
#include "rcache.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

enum { most_threads = 8, buffers = 4, bytes = 16 * 4096 };

struct registration {
  mca_rcache_base_registration_t super;
  uint64_t stamp;
};

struct worker {
  pthread_t thread;
  uint64_t number, made;
  uint64_t *owned[buffers];
  long used, refused, stale;
};

static mca_rcache_base_module_t *cache;
static time_t end;
static int device_open, device_most;

static int register_mem(void *self, void *base, size_t size, mca_rcache_base_registration_t *made) {
  (void)self;
  (void)size;
  if (__atomic_fetch_add(&device_open, 1, __ATOMIC_RELAXED) >= device_most) {
    __atomic_fetch_sub(&device_open, 1, __ATOMIC_RELAXED);
    return OPAL_ERR_OUT_OF_RESOURCE;
  }
  ((struct registration *)made)->stamp = *(const uint64_t *)base;
  return OPAL_SUCCESS;
}

static int deregister_mem(void *self, mca_rcache_base_registration_t *gone) {
  (void)self;
  (void)gone;
  __atomic_fetch_sub(&device_open, 1, __ATOMIC_RELAXED);
  return OPAL_SUCCESS;
}

/* The kernel gives the address to the next that asks, often another thread. */
static uint64_t *replace(struct worker *self, uint64_t *old) {
  if (old != NULL) munmap(old, bytes);
  uint64_t *fresh = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED) {
    perror("mmap");
    exit(1);
  }
  *fresh = self->number << 56 | ++self->made;
  return fresh;
}

static void use(struct worker *self, uint64_t *buffer) {
  mca_rcache_base_registration_t *held = NULL;
  if (cache->rcache_register(cache, buffer, bytes, 0, MCA_RCACHE_ACCESS_ANY, &held) != OPAL_SUCCESS) {
    ++self->refused;
    return;
  }
  ++self->used;
  self->stale += ((struct registration *)held)->stamp != *buffer;
  if (cache->rcache_deregister(cache, held) != OPAL_SUCCESS) ++self->stale;
}

static void *work(void *of_thread) {
  struct worker *self = of_thread;
  for (unsigned turn = 0; turn == 0 || turn % 1024 != 0 || time(NULL) < end; ++turn) {
    uint64_t **one = &self->owned[turn / 4 % buffers];
    if (*one == NULL || turn % 8 == 2) *one = replace(self, *one);
    use(self, *one);
  }
  return NULL;
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  const unsigned threads = (unsigned)atoi(argv[1]);
  if (threads < 1 || threads > most_threads) return 2;
  device_most = (int)threads + 2;
  mca_rcache_base_resources_t calls = {"test", NULL, sizeof(struct registration), register_mem, deregister_mem};
  cache = make_rcache(&calls);
  if (cache == NULL) return 1;
  end = time(NULL) + atoi(argv[2]);
  static struct worker workers[most_threads];
  for (unsigned i = 0; i < threads; ++i) {
    workers[i].number = i + 1;
    if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) return 1;
  }
  long used = 0, refused = 0, stale = 0;
  for (unsigned i = 0; i < threads; ++i) {
    pthread_join(workers[i].thread, NULL);
    used += workers[i].used;
    refused += workers[i].refused;
    stale += workers[i].stale;
  }
  mca_rcache_base_module_destroy(cache);
  printf("%u threads: %ld uses, %ld refused, %ld stale, %d open at the end\n", threads, used, refused, stale,
         device_open);
  return used > 0 && stale == 0 && device_open == 0 ? 0 : 1;
}
