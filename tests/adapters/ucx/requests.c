/* SPDX-License-Identifier: BSD-3-Clause */
/* Plain requests: what a region covers, when it is registered again. */
#include "rig.h"

#include <sys/wait.h>
#include <unistd.h>

static ucs_rcache_params_t usual;

static ucs_rcache_t *make_usual(void) {
  usual = params();
  return make(&usual);
}

static void same_region_again(void) {
  ucs_rcache_t *cache = make_usual();
  char *memory = map(4 * page);
  struct region *first = get(cache, memory, 4 * page, read_write);
  struct region *second = get(cache, memory + page, page, read_only);
  expect(first == second);
  put(cache, second);
  put(cache, first);
  touch(cache, memory, 4 * page, read_write);
  expect(driver.registered == 1 && driver.deregistered == 0);
  ucs_rcache_destroy(cache);
  expect(driver.deregistered == 1);
  munmap(memory, 4 * page);
}

static void rounded_to_alignment(void) {
  ucs_rcache_t *cache = make_usual();
  char *memory = map(4 * page);
  struct region *small = get(cache, memory + 5, 30, read_write);
  expect(is_exactly(small, memory, 48));
  put(cache, small);
  ucs_rcache_destroy(cache);

  usual.alignment = page;
  cache = make(&usual);
  struct region *pages = get(cache, memory + page - 1, 2, read_write);
  expect(is_exactly(pages, memory, 2 * page));
  put(cache, pages);
  ucs_rcache_destroy(cache);
  munmap(memory, 4 * page);
}

static void region_with_its_access(void) {
  ucs_rcache_t *cache = make_usual();
  char *memory = map(page);
  struct region *reading = get(cache, memory, page, read_only);
  expect(reading->super.prot == read_only && reading->super.status == UCS_OK);
  expect((reading->super.flags & UCS_RCACHE_REGION_FLAG_REGISTERED) != 0);
  struct region *writing = get(cache, memory, page, read_write);
  expect(writing != reading && writing->super.prot == read_write);
  put(cache, reading);
  put(cache, writing);
  expect(touch(cache, memory, page, read_only) == touch(cache, memory, page, read_write));
  ucs_rcache_destroy(cache);
  expect(open_now() == 0);
  munmap(memory, page);
}

static void held_by_several_users(void) {
  ucs_rcache_t *cache = make_usual();
  char *memory = map(page);
  struct region *region = get(cache, memory, page, read_write);
  ucs_rcache_region_hold(cache, &region->super);
  ucs_rcache_region_hold(cache, &region->super);
  remap(memory, page);
  put(cache, region);
  put(cache, region);
  expect(is_alive(region));
  put(cache, region);
  touch(cache, memory, page, read_write); /* does what is due */
  expect(driver.registered == 2 && driver.deregistered == 1);
  ucs_rcache_destroy(cache);
  munmap(memory, page);
}

static void two_caches(void) {
  ucs_rcache_t *one = make_usual();
  ucs_rcache_t *other;
  expect(ucs_rcache_create(&usual, "other", NULL, &other) == UCS_OK);
  char *memory = map(page);
  const unsigned id = touch(one, memory, page, read_write);
  expect(touch(other, memory, page, read_write) != id);
  ucs_rcache_destroy(other);
  expect(touch(one, memory, page, read_write) == id);
  ucs_rcache_destroy(one);
  expect(open_now() == 0);
  munmap(memory, page);
}

/* As libucp's over a transport's: one cache's mem_reg calls the other. */
static void cache_over_a_cache(void) {
  ucs_rcache_t *cache = make_usual();
  expect(ucs_rcache_create(&usual, "below", NULL, &driver.below) == UCS_OK);
  char *memory = map(2 * page);
  const unsigned id = touch(cache, memory, page, read_write);
  expect(open_now() == 2);
  remap(memory, page);
  expect(touch(cache, memory, page, read_write) > id);
  touch(cache, memory, 2 * page, read_write);
  ucs_rcache_destroy(cache);
  ucs_rcache_destroy(driver.below);
  expect(driver.registered == 6 && open_now() == 0);
  munmap(memory, 2 * page);
}

static void memory_of_another_process(void) {
  usual = params();
  usual.ucm_events = 0;
  ucs_rcache_t *cache = make(&usual);
  driver.elsewhere = 1;
  char *memory = (char *)page;
  expect(touch(cache, memory, page, read_write) == touch(cache, memory, page, read_write));
  ucs_rcache_destroy(cache);
  expect(driver.registered == 1 && open_now() == 0);
}

static void purged_at_forks(void) {
  usual = params();
  usual.flags |= UCS_RCACHE_FLAG_PURGE_ON_FORK;
  ucs_rcache_t *cache = make(&usual);
  char *memory = map(2 * page);
  const unsigned id = touch(cache, memory, page, read_write);
  struct region *in_use = get(cache, memory + page, page, read_write);
  const pid_t child = fork();
  if (child == 0) _exit(driver.deregistered == 1 ? 0 : 1);
  int status = -1;
  waitpid(child, &status, 0);
  expect(status == 0);
  expect(is_alive(in_use));
  put(cache, in_use);
  expect(driver.deregistered == 2);
  expect(touch(cache, memory, page, read_write) != id);
  ucs_rcache_destroy(cache);
  expect(open_now() == 0);
  munmap(memory, 2 * page);
}

const struct test_case requests[] = {{"same_region_again", same_region_again},
                                     {"rounded_to_alignment", rounded_to_alignment},
                                     {"region_with_its_access", region_with_its_access},
                                     {"held_by_several_users", held_by_several_users},
                                     {"two_caches", two_caches},
                                     {"cache_over_a_cache", cache_over_a_cache},
                                     {"memory_of_another_process", memory_of_another_process},
                                     {"purged_at_forks", purged_at_forks},
                                     {NULL, NULL}};
