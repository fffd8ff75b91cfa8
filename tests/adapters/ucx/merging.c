/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests that overlap regions: one region for all, with the access of all, where the memory allows that. */
#include "rig.h"

#include <stdlib.h>

static ucs_rcache_t *make_usual(void) {
  const ucs_rcache_params_t usual = params();
  return make(&usual);
}

static void overlapping_requests(void) {
  ucs_rcache_t *cache = make_usual();
  char *memory = map(4 * page);
  struct region *low = get(cache, memory, 2 * page, read_write);
  struct region *all = get(cache, memory + page, 3 * page, read_write);
  expect(is_exactly(all, memory, 4 * page));
  expect(driver.hidden == 1);
  expect(touch(cache, memory, page, read_write) == all->id);
  expect(is_alive(low) && driver.deregistered == 0);
  put(cache, low);
  expect(driver.deregistered == 1);
  put(cache, all);
  ucs_rcache_destroy(cache);
  munmap(memory, 4 * page);
}

static void bridged_regions(void) {
  ucs_rcache_t *cache = make_usual();
  char *memory = map(4 * page);
  touch(cache, memory, page, read_write);
  touch(cache, memory + 3 * page, page, read_write);
  struct region *all = get(cache, memory + page / 2, 3 * page, read_write);
  expect(is_exactly(all, memory, 4 * page));
  expect(open_now() == 1);
  put(cache, all);
  ucs_rcache_destroy(cache);
  munmap(memory, 4 * page);
}

static void neighbours_stay_apart(void) {
  ucs_rcache_t *cache = make_usual();
  char *memory = map(2 * page);
  struct region *low = get(cache, memory, page, read_write);
  struct region *high = get(cache, memory + page, page, read_write);
  expect(is_exactly(low, memory, page) && is_exactly(high, memory + page, page));
  put(cache, low);
  put(cache, high);
  expect(open_now() == 2);
  ucs_rcache_destroy(cache);
  munmap(memory, 2 * page);
}

static void union_of_access(void) {
  ucs_rcache_t *cache = make_usual();
  char *memory = map(3 * page);
  touch(cache, memory, 2 * page, PROT_WRITE);
  struct region *all = get(cache, memory + page, 2 * page, PROT_READ);
  expect(is_exactly(all, memory, 3 * page) && all->super.prot == read_write);
  put(cache, all);
  expect(touch(cache, memory, 3 * page, read_write) == touch(cache, memory, page, PROT_READ));
  expect(open_now() == 1);
  ucs_rcache_destroy(cache);
  munmap(memory, 3 * page);
}

/* The memory does not allow what an earlier region had: the request is served without that. */
static void access_given_up(void) {
  ucs_rcache_t *cache = make_usual();
  char *memory = map(3 * page);
  touch(cache, memory, 2 * page, read_write);
  mprotect(memory, page, PROT_READ);
  struct region *reading = get(cache, memory, 3 * page, read_only);
  expect(reading->super.prot == read_only);
  struct region *writing = get(cache, memory + 2 * page, page, read_write);
  expect(writing->super.super.start >= (uintptr_t)memory + page);
  put(cache, reading);
  put(cache, writing);
  ucs_rcache_destroy(cache);
  expect(open_now() == 0);
  munmap(memory, 3 * page);
}

/* Part of an earlier region cannot be registered any more: the request is served alone. */
static void union_refused(void) {
  ucs_rcache_t *cache = make_usual();
  char *memory = map(3 * page);
  touch(cache, memory, 2 * page, read_write);
  mprotect(memory, page, PROT_NONE);
  struct region *alone = get(cache, memory + page, 2 * page, read_write);
  expect(is_exactly(alone, memory + page, 2 * page));
  expect(driver.hidden == 1);
  put(cache, alone);
  ucs_rcache_destroy(cache);
  expect(open_now() == 0);
  munmap(memory, 3 * page);
}

enum { pages_in_play = 256, requests_made = 400 };

/* Marks the pages of a request, and of all earlier ones that it joins, as one region's. `region_of` has a number for
 * each page, 0 for none. */
static void join(unsigned *region_of, unsigned first, unsigned end, unsigned number) {
  for (unsigned i = first; i < end; ++i) {
    const unsigned other = region_of[i];
    for (unsigned j = 0; j < pages_in_play && other != 0; ++j)
      if (region_of[j] == other) region_of[j] = number;
    region_of[i] = number;
  }
}

static unsigned regions_in(const unsigned *region_of) {
  unsigned found = 0;
  for (unsigned i = 0; i < pages_in_play; ++i)
    found += region_of[i] != 0 && (i == 0 || region_of[i] != region_of[i - 1]);
  return found;
}

/* However requests overlap, as many registrations stay as there are unions of requests: no more than over UCX. */
static void no_more_registrations_than_unions(void) {
  for (unsigned seed = 1; seed <= 5; ++seed) {
    ucs_rcache_t *cache = make_usual();
    char *memory = map(pages_in_play * page);
    unsigned region_of[pages_in_play] = {0}, random = seed;
    for (unsigned i = 1; i <= requests_made; ++i) {
      const unsigned first = (unsigned)rand_r(&random) % pages_in_play,
                     asked_end = first + 1 + (unsigned)rand_r(&random) % 3;
      const unsigned end = asked_end < pages_in_play ? asked_end : pages_in_play;
      if (i % 4 != 0 && first % 8 > 5) continue; /* leaves gaps for some time */
      touch(cache, memory + (size_t)first * page, (size_t)(end - first) * page, read_write);
      join(region_of, first, end, i);
      expect(open_now() == regions_in(region_of));
    }
    ucs_rcache_destroy(cache);
    munmap(memory, pages_in_play * page);
  }
}

const struct test_case merging[] = {{"overlapping_requests", overlapping_requests},
                                    {"bridged_regions", bridged_regions},
                                    {"neighbours_stay_apart", neighbours_stay_apart},
                                    {"union_of_access", union_of_access},
                                    {"access_given_up", access_given_up},
                                    {"union_refused", union_refused},
                                    {"no_more_registrations_than_unions", no_more_registrations_than_unions},
                                    {NULL, NULL}};
