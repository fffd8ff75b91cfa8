/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory that goes, and regions that UCX invalidates. */
#include "rig.h"

static unsigned done_calls, deregistered_before;

static void done(void *arg) {
  expect(arg == &done_calls);
  ++done_calls;
  deregistered_before = driver.deregistered;
}

static ucs_rcache_t *make_usual(void) {
  const ucs_rcache_params_t usual = params();
  done_calls = deregistered_before = 0;
  return make(&usual);
}

static void invalidate(ucs_rcache_t *cache, struct region *region) {
  ucs_rcache_region_invalidate(cache, &region->super, done, &done_calls);
}

static void unmapped_when_idle(void) {
  ucs_rcache_t *cache = make_usual();
  char *memory = map(4 * page);
  unsigned last = 0;
  for (int i = 0; i < 20; ++i) {
    const unsigned id = touch(cache, memory, 4 * page, read_write);
    expect(id > last); /* never repeats */
    last = id;
    if (i % 2 == 0)
      remap(memory, 4 * page);
    else
      madvise(memory, 4 * page, MADV_DONTNEED);
  }
  expect(driver.registered == 20 && driver.deregistered >= 19);
  ucs_rcache_destroy(cache);
  expect(open_now() == 0);
  munmap(memory, 4 * page);
}

static void unmapped_in_use(void) {
  ucs_rcache_t *cache = make_usual();
  char *memory = map(page);
  struct region *old = get(cache, memory, page, read_write);
  remap(memory, page);
  struct region *fresh = get(cache, memory, page, read_write);
  expect(fresh != old && fresh->id > old->id && is_alive(old));
  put(cache, old);
  expect(touch(cache, memory, page, read_write) == fresh->id);
  put(cache, fresh);
  expect(open_now() == 1);
  ucs_rcache_destroy(cache);
  munmap(memory, page);
}

static void part_unmapped(void) {
  ucs_rcache_t *cache = make_usual();
  char *memory = map(4 * page);
  const unsigned id = touch(cache, memory, 4 * page, read_write);
  remap(memory + 2 * page, page);
  expect(touch(cache, memory, page, read_write) != id);
  ucs_rcache_destroy(cache);
  expect(open_now() == 0);
  munmap(memory, 4 * page);
}

static void invalidated_when_idle(void) {
  ucs_rcache_t *cache = make_usual();
  char *memory = map(page);
  struct region *region = get(cache, memory, page, read_write);
  const unsigned id = region->id;
  put(cache, region);
  expect(driver.deregistered == 0);
  if (driver.deregistered == 0) invalidate(cache, region); /* or else there is no region any more */
  expect(done_calls == 1 && deregistered_before == 1);
  expect(touch(cache, memory, page, read_write) > id);
  ucs_rcache_destroy(cache);
  expect(done_calls == 1);
  munmap(memory, page);
}

static void invalidated_in_use(void) {
  ucs_rcache_t *cache = make_usual();
  char *memory = map(page);
  struct region *first = get(cache, memory, page, read_write);
  struct region *same = get(cache, memory, page, read_write);
  ucs_rcache_region_hold(cache, &first->super);
  expect(first == same);
  invalidate(cache, first);
  struct region *fresh = get(cache, memory, page, read_write);
  expect(fresh != first);
  put(cache, first);
  put(cache, first);
  expect(done_calls == 0 && is_alive(first));
  put(cache, first);
  expect(done_calls == 1 && deregistered_before == 1);
  put(cache, fresh);
  expect(touch(cache, memory, page, read_write) == touch(cache, memory, page, read_write));
  expect(driver.registered == 2);
  ucs_rcache_destroy(cache);
  munmap(memory, page);
}

static void invalidated_twice(void) {
  ucs_rcache_t *cache = make_usual();
  char *memory = map(page);
  struct region *region = get(cache, memory, page, read_write);
  invalidate(cache, region);
  invalidate(cache, region);
  expect(done_calls == 0);
  put(cache, region);
  expect(done_calls == 2);
  ucs_rcache_destroy(cache);
  expect(done_calls == 2 && open_now() == 0);
  munmap(memory, page);
}

static void invalidated_after_unmap(void) {
  ucs_rcache_t *cache = make_usual();
  char *memory = map(page);
  struct region *region = get(cache, memory, page, read_write);
  munmap(memory, page);
  invalidate(cache, region);
  expect(done_calls == 0 && is_alive(region));
  put(cache, region);
  expect(done_calls == 1);
  ucs_rcache_destroy(cache);
  expect(open_now() == 0);
}

static void others_stay_valid(void) {
  ucs_rcache_t *cache = make_usual();
  char *memory = map(2 * page);
  const unsigned id = touch(cache, memory, page, read_write);
  struct region *region = get(cache, memory + page, page, read_write);
  invalidate(cache, region);
  put(cache, region);
  expect(done_calls == 1);
  expect(touch(cache, memory, page, read_write) == id);
  ucs_rcache_destroy(cache);
  munmap(memory, 2 * page);
}

const struct test_case invalidations[] = {{"unmapped_when_idle", unmapped_when_idle},
                                          {"unmapped_in_use", unmapped_in_use},
                                          {"part_unmapped", part_unmapped},
                                          {"invalidated_when_idle", invalidated_when_idle},
                                          {"invalidated_in_use", invalidated_in_use},
                                          {"invalidated_twice", invalidated_twice},
                                          {"invalidated_after_unmap", invalidated_after_unmap},
                                          {"others_stay_valid", others_stay_valid},
                                          {NULL, NULL}};
