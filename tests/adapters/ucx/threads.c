/* SPDX-License-Identifier: BSD-3-Clause */
/* Ten threads: shared regions, overlapping requests, memory that goes. For PINFOLD_TEST_SECONDS in all. */
#include "rig.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { count = 10, shared_pages = 64, own_pages = 8 };

static ucs_rcache_t *cache;
static char *shared;
static double end;
static unsigned requests_made;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void share_regions(unsigned *seed) {
  const size_t first = (size_t)rand_r(seed) % shared_pages;
  const size_t pages = 1 + (size_t)rand_r(seed) % (shared_pages - first);
  struct region *region = get(cache, shared + first * page, pages * page, rand_r(seed) % 2 ? read_only : read_write);
  ucs_rcache_region_hold(cache, &region->super);
  put(cache, region);
  put(cache, region);
}

static void ignore(void *arg) { (void)arg; }

static void invalidate_region(unsigned *seed) {
  struct region *region = get(cache, shared + (size_t)rand_r(seed) % shared_pages * page, page, read_write);
  ucs_rcache_region_invalidate(cache, &region->super, ignore, NULL);
  put(cache, region);
}

/* What is got after the memory was replaced is a new registration. */
static void replace_memory(unsigned *seed) {
  char *own = map(own_pages * page);
  const unsigned id = touch(cache, own, own_pages * page, read_write);
  remap(own, own_pages * page);
  expect(touch(cache, own + (size_t)rand_r(seed) % own_pages * page, page, read_only) > id);
  munmap(own, own_pages * page);
}

static void *use(void *number) {
  unsigned seed = (unsigned)(uintptr_t)number;
  unsigned made = 0;
  for (; made < 4 || now() < end; ++made) { /* so many, however late the thread begins */
    const int what = rand_r(&seed) % 16;
    if (what == 0)
      replace_memory(&seed);
    else if (what == 1)
      invalidate_region(&seed);
    else
      share_regions(&seed);
  }
  __atomic_fetch_add(&requests_made, made, __ATOMIC_SEQ_CST);
  return NULL;
}

static void run_threads(unsigned long regions) {
  ucs_rcache_params_t limited = params();
  limited.max_regions = regions;
  cache = make(&limited);
  shared = map(shared_pages * page);
  const char *seconds = getenv("PINFOLD_TEST_SECONDS");
  end = now() + (seconds != NULL ? atof(seconds) : 2) / 2;
  requests_made = 0;
  pthread_t ids[count];
  for (uintptr_t i = 0; i < count; ++i) pthread_create(&ids[i], NULL, use, (void *)(i + 1));
  for (int i = 0; i < count; ++i) pthread_join(ids[i], NULL);
  ucs_rcache_destroy(cache);
  printf("       %u rounds, %u registered\n", requests_made, driver.registered);
  expect(requests_made > count);
  expect(driver.registered > 0 && open_now() == 0);
  expect(driver.most_inside == 1); /* UCX's functions are called one at a time */
  munmap(shared, shared_pages * page);
}

static void ten_threads(void) { run_threads((unsigned long)-1); }
static void ten_threads_with_a_limit(void) { run_threads(4); }

const struct test_case threads[] = {
    {"ten_threads", ten_threads}, {"ten_threads_with_a_limit", ten_threads_with_a_limit}, {NULL, NULL}};
