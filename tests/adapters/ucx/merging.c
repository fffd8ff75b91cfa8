/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests that overlap regions: one region for all, with the access of all, where the memory allows that. */
#include "rig.h"

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

const struct test_case merging[] = {{"overlapping_requests", overlapping_requests},
                                    {"bridged_regions", bridged_regions},
                                    {"neighbours_stay_apart", neighbours_stay_apart},
                                    {"union_of_access", union_of_access},
                                    {"access_given_up", access_given_up},
                                    {"union_refused", union_refused},
                                    {NULL, NULL}};
