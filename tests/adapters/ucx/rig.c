/* SPDX-License-Identifier: BSD-3-Clause */
#include "rig.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucm/api/ucm.h>

struct driver driver;
static unsigned last_id;

static void give_up(const char *what) {
  printf("cannot go on: %s\n", what);
  exit(EXIT_FAILURE);
}

/* The access that all of the memory allows. */
static int mapped_prot(uintptr_t start, uintptr_t end) {
  FILE *maps = fopen("/proc/self/maps", "re");
  if (maps == NULL) give_up("/proc/self/maps");
  int prot = PROT_READ | PROT_WRITE;
  uintptr_t first, last, covered = start;
  char read, write, line[512];
  while (covered < end && fgets(line, sizeof line, maps) != NULL) {
    if (sscanf(line, "%lx-%lx %c%c", &first, &last, &read, &write) != 4 || last <= covered) continue;
    if (first > covered) break;
    prot &= (read == 'r' ? PROT_READ : 0) | (write == 'w' ? PROT_WRITE : 0);
    covered = last;
  }
  fclose(maps);
  return covered < end ? 0 : prot;
}

static void enter(void) {
  const unsigned inside = __atomic_add_fetch(&driver.inside, 1, __ATOMIC_SEQ_CST);
  unsigned most = __atomic_load_n(&driver.most_inside, __ATOMIC_SEQ_CST);
  while (inside > most &&
         !__atomic_compare_exchange_n(&driver.most_inside, &most, inside, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
  }
}

static void leave(void) { __atomic_fetch_sub(&driver.inside, 1, __ATOMIC_SEQ_CST); }

static ucs_status_t mem_reg(void *context, ucs_rcache_t *cache, void *arg, ucs_rcache_region_t *super, uint16_t flags) {
  (void)arg;
  if (context != &driver) return UCS_ERR_INVALID_PARAM;
  if ((flags & UCS_RCACHE_MEM_REG_HIDE_ERRORS) != 0) ++driver.hidden;
  if (driver.fails != UCS_OK) return driver.fails;
  if (!driver.elsewhere && (mapped_prot(super->super.start, super->super.end) & super->prot) != super->prot)
    return UCS_ERR_IO_ERROR;
  struct region *region = (struct region *)super;
  if (driver.below != NULL && driver.below != cache) {
    void *const address = (void *)super->super.start;
    const size_t bytes = super->super.end - super->super.start;
    const ucs_status_t status = ucs_rcache_get(driver.below, address, bytes, super->prot, NULL, &region->below);
    if (status != UCS_OK) return status;
  }
  enter();
  region->id = __atomic_add_fetch(&last_id, 1, __ATOMIC_SEQ_CST);
  region->alive = alive_mark;
  sched_yield(); /* so that another thread comes in, if it can */
  __atomic_fetch_add(&driver.registered, 1, __ATOMIC_SEQ_CST);
  leave();
  return UCS_OK;
}

static void mem_dereg(void *context, ucs_rcache_t *cache, ucs_rcache_region_t *super) {
  (void)context;
  struct region *region = (struct region *)super;
  if (driver.below != NULL && driver.below != cache) ucs_rcache_region_put(driver.below, region->below);
  enter();
  expect(is_alive(region));
  region->alive = 0;
  __atomic_fetch_add(&driver.deregistered, 1, __ATOMIC_SEQ_CST);
  leave();
}

static void dump(void *context, ucs_rcache_t *cache, ucs_rcache_region_t *region, char *text, size_t room) {
  (void)context;
  (void)cache;
  snprintf(text, room, "number %u", ((struct region *)region)->id);
}

ucs_rcache_params_t params(void) {
  static const ucs_rcache_ops_t ops = {mem_reg, mem_dereg, dump};
  const ucs_rcache_params_t usual = {.region_struct_size = sizeof(struct region),
                                     .alignment = UCS_RCACHE_MIN_ALIGNMENT,
                                     .max_alignment = page,
                                     .ucm_events = UCM_EVENT_VM_UNMAPPED,
                                     .ucm_event_priority = 1000,
                                     .ops = &ops,
                                     .context = &driver,
                                     .max_regions = (unsigned long)-1,
                                     .max_size = SIZE_MAX,
                                     .max_unreleased = SIZE_MAX};
  return usual;
}

ucs_rcache_t *make(const ucs_rcache_params_t *params) {
  ucs_rcache_t *cache;
  memset(&driver, 0, sizeof driver);
  if (ucs_rcache_create(params, "cases", NULL, &cache) != UCS_OK) give_up("ucs_rcache_create");
  return cache;
}

struct region *get(ucs_rcache_t *cache, void *address, size_t bytes, int prot) {
  ucs_rcache_region_t *region;
  if (ucs_rcache_get(cache, address, bytes, prot, NULL, &region) != UCS_OK) give_up("ucs_rcache_get");
  expect(region->super.start <= (uintptr_t)address && region->super.end >= (uintptr_t)address + bytes);
  expect((region->prot & prot) == prot);
  expect(is_alive((struct region *)region));
  return (struct region *)region;
}

void put(ucs_rcache_t *cache, struct region *region) {
  expect(is_alive(region));
  ucs_rcache_region_put(cache, &region->super);
}

unsigned touch(ucs_rcache_t *cache, void *address, size_t bytes, int prot) {
  struct region *region = get(cache, address, bytes, prot);
  const unsigned id = region->id;
  put(cache, region);
  return id;
}

char *map(size_t bytes) {
  char *memory = mmap(NULL, bytes, read_write, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) give_up("mmap");
  return memory;
}

void remap(void *address, size_t bytes) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  if (mmap(address, bytes, read_write, flags, -1, 0) != address) give_up("mmap at an address");
}

int is_alive(const struct region *region) { return __atomic_load_n(&region->alive, __ATOMIC_RELAXED) == alive_mark; }

int is_exactly(const struct region *region, const void *address, size_t bytes) {
  return region->super.super.start == (uintptr_t)address && region->super.super.end == (uintptr_t)address + bytes;
}

unsigned open_now(void) { return driver.registered - driver.deregistered; }
