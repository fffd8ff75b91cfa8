/* SPDX-License-Identifier: BSD-3-Clause */
/* Limits of count and size: idle regions go for new ones; what is in use may exceed them. */
#include "rig.h"

enum { buffers = 5, limit = 2, apart = 2 * page }; /* with a hole between two: they are never merged */

static ucs_rcache_t *make_limited(unsigned long regions, size_t bytes) {
  ucs_rcache_params_t limited = params();
  limited.max_regions = regions;
  limited.max_size = bytes;
  return make(&limited);
}

static void exceed_when_idle(ucs_rcache_t *cache) {
  char *memory = map(buffers * apart);
  for (int i = 0; i < buffers; ++i) {
    touch(cache, memory + i * apart, page, read_write);
    expect(open_now() <= limit);
  }
  expect(driver.registered == buffers);
  ucs_rcache_destroy(cache);
  expect(open_now() == 0);
  munmap(memory, buffers * apart);
}

static void exceed_in_use(ucs_rcache_t *cache) {
  char *memory = map((buffers + 1) * apart);
  struct region *used[buffers];
  for (int i = 0; i < buffers; ++i) used[i] = get(cache, memory + i * apart, page, read_write);
  expect(open_now() == buffers);
  expect(touch(cache, memory, page, read_write) == used[0]->id);
  for (int i = 0; i < buffers; ++i) put(cache, used[i]);
  touch(cache, memory + buffers * apart, page, read_write);
  expect(open_now() <= limit);
  ucs_rcache_destroy(cache);
  expect(open_now() == 0);
  munmap(memory, (buffers + 1) * apart);
}

static void by_count(void) { exceed_when_idle(make_limited(limit, SIZE_MAX)); }
static void by_size(void) { exceed_when_idle(make_limited((unsigned long)-1, limit * page)); }
static void by_count_in_use(void) { exceed_in_use(make_limited(limit, SIZE_MAX)); }
static void by_size_in_use(void) { exceed_in_use(make_limited((unsigned long)-1, limit * page)); }

static void larger_than_the_limit(void) {
  ucs_rcache_t *cache = make_limited((unsigned long)-1, limit * page);
  char *memory = map(buffers * apart);
  struct region *large = get(cache, memory, buffers * apart, read_write);
  put(cache, large);
  touch(cache, memory + page, page, read_write);
  expect(open_now() <= limit);
  ucs_rcache_destroy(cache);
  expect(open_now() == 0);
  munmap(memory, buffers * apart);
}

const struct test_case limits[] = {{"by_count", by_count},
                                   {"by_size", by_size},
                                   {"by_count_in_use", by_count_in_use},
                                   {"by_size_in_use", by_size_in_use},
                                   {"larger_than_the_limit", larger_than_the_limit},
                                   {NULL, NULL}};
