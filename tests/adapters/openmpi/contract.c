/* SPDX-License-Identifier: BSD-3-Clause */
/* What Open MPI's BTLs rely on, asked of the component through Open MPI's own functions, with a BTL of the test's.
 * The component must be selected and found by the environment. */
#include "rcache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { page = 4096, area = 64 * page };

struct registration {
  mca_rcache_base_registration_t super;
  uint64_t key;
};

static struct {
  int open, opened;
  int most;          /* the device has no more */
  int refusal;       /* what register_mem returns instead of success */
  int close_refusal; /* the same of deregister_mem */
} device = {.most = 1000};

static int register_mem(void *self, void *base, size_t bytes, mca_rcache_base_registration_t *made) {
  if (self != &device || made->base != base || made->bound != (unsigned char *)base + bytes - 1) return OPAL_ERROR;
  if (device.refusal != OPAL_SUCCESS) return device.refusal;
  if (device.open == device.most) return OPAL_ERR_OUT_OF_RESOURCE;
  ++device.open;
  ((struct registration *)made)->key = (uint64_t)++device.opened;
  return OPAL_SUCCESS;
}

static int deregister_mem(void *self, mca_rcache_base_registration_t *gone) {
  if (self != &device || ((struct registration *)gone)->key == 0) return OPAL_ERROR;
  if (device.close_refusal != OPAL_SUCCESS) return device.close_refusal;
  --device.open;
  return OPAL_SUCCESS;
}

static int failures;
static void check(int holds, const char *what, int line) {
  if (holds) return;
  fprintf(stderr, "contract.c:%d: does not hold: %s\n", line, what);
  ++failures;
}
#define CHECK(condition) check(condition, #condition, __LINE__)

static mca_rcache_base_module_t *cache;
static unsigned char *memory;

static mca_rcache_base_registration_t *get_with(void *at, size_t bytes, uint32_t flags, int32_t access) {
  mca_rcache_base_registration_t *got = NULL;
  const int code = cache->rcache_register(cache, at, bytes, flags, access, &got);
  CHECK((code == OPAL_SUCCESS) == (got != NULL));
  return got;
}
static mca_rcache_base_registration_t *get(void *at, size_t bytes) {
  return get_with(at, bytes, 0, MCA_RCACHE_ACCESS_REMOTE_READ);
}
static void put(mca_rcache_base_registration_t *held) {
  CHECK(held != NULL && cache->rcache_deregister(cache, held) == OPAL_SUCCESS);
}

static void registration_describes_the_memory(void) {
  mca_rcache_base_registration_t *held = get_with(memory + 10, 5000, MCA_RCACHE_FLAGS_SO_MEM, MCA_RCACHE_ACCESS_ANY);
  CHECK(held->rcache == cache);
  CHECK(held->base <= memory + 10 && held->bound >= memory + 5009);
  CHECK((held->access_flags & MCA_RCACHE_ACCESS_ANY) == MCA_RCACHE_ACCESS_ANY);
  CHECK(held->flags == MCA_RCACHE_FLAGS_SO_MEM);
  put(held);
}

static void same_memory_is_registered_once(void) {
  const int before = device.opened;
  mca_rcache_base_registration_t *first = get(memory, area);
  mca_rcache_base_registration_t *second = get(memory + page, page);
  CHECK(first == second);
  CHECK(device.opened == before + 1);
  put(first);
  put(second);
  CHECK(get(memory, area) == first && device.opened == before + 1);
  put(first);
}

static void more_access_is_registered_with_what_there_was(void) {
  mca_rcache_base_registration_t *reader = get(memory, area);
  mca_rcache_base_registration_t *writer = get_with(memory, area, 0, MCA_RCACHE_ACCESS_REMOTE_WRITE);
  CHECK(writer != reader);
  CHECK((writer->access_flags & MCA_RCACHE_ACCESS_REMOTE_READ) != 0);
  put(reader);
  put(writer);
}

/* As the elements of a strided transfer. */
static void pieces_of_a_page_share_a_registration(void) {
  const int before = device.opened;
  for (int at = 0; at < 2 * page; at += 64) put(get(memory + at, 8));
  CHECK(device.opened == before + 2);
  mca_rcache_base_registration_t *writer = get_with(memory + 8, 8, 0, MCA_RCACHE_ACCESS_REMOTE_WRITE);
  CHECK(device.opened == before + 3);
  CHECK((writer->access_flags & MCA_RCACHE_ACCESS_REMOTE_READ) != 0);
  mca_rcache_base_registration_t *reader = get(memory + 16, 8);
  CHECK(reader == writer && device.opened == before + 3);
  put(writer);
  put(reader);
}

/* Otherwise each buffer of a heap would be registered with all that were before it. */
static void neighbours_that_share_a_page_stay_apart(void) {
  enum { size = page + page / 2 };
  for (unsigned char *at = memory; at + size <= memory + area; at += size) {
    mca_rcache_base_registration_t *one = get(at, size);
    CHECK(one->bound - one->base + 1 <= 3 * page);
    put(one);
  }
}

static void remap(int by_munmap) {
  mca_rcache_base_registration_t *held = get(memory, area);
  const uint64_t key = ((struct registration *)held)->key;
  put(held);
  if (by_munmap) CHECK(munmap(memory, area) == 0);
  CHECK(mmap(memory, area, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == memory);
  held = get(memory, area);
  CHECK(((struct registration *)held)->key > key);
  put(held);
}

static void remapped_memory_is_registered_again(void) {
  remap(1);
  remap(0);
}

static void invalidated_while_held(void) {
  mca_rcache_base_registration_t *held = get(memory, area);
  CHECK(cache->rcache_invalidate_range(cache, memory, area) == OPAL_SUCCESS);
  mca_rcache_base_registration_t *fresh = get(memory, area);
  CHECK(fresh != held);
  put(held);
  put(fresh);
}

static void bypass_is_registered_for_one_user(void) {
  const int open = device.open;
  mca_rcache_base_registration_t *kept = get(memory, area);
  mca_rcache_base_registration_t *own = get_with(memory, area, MCA_RCACHE_FLAGS_CACHE_BYPASS, 0);
  CHECK(own != kept);
  put(kept);
  put(own);
  CHECK(device.open <= open + 1);
}

static void find_registers_nothing(void) {
  put(get(memory, area));
  const int before = device.opened;
  mca_rcache_base_registration_t *found = NULL;
  CHECK(cache->rcache_find(cache, memory, page, &found) == OPAL_SUCCESS && found != NULL);
  put(found);
  CHECK(cache->rcache_find(cache, &failures, sizeof failures, &found) == OPAL_SUCCESS && found == NULL);
  CHECK(device.opened == before);
}

static void full_device_evicts(void) {
  device.most = 2;
  for (int i = 0; i < 8; ++i) put(get(memory + 2 * i * page, page));
  CHECK(device.open == 2);
  mca_rcache_base_registration_t *one = get(memory + 20 * page, page);
  mca_rcache_base_registration_t *two = get(memory + 22 * page, page);
  mca_rcache_base_registration_t *three = NULL;
  CHECK(cache->rcache_register(cache, memory + 24 * page, page, 0, 0, &three) == OPAL_ERR_OUT_OF_RESOURCE);
  CHECK(three == NULL);
  CHECK(!cache->rcache_evict(cache));
  put(one);
  put(two);
  device.most = 1000;
}

static int code_of_register(void *at, size_t bytes) {
  mca_rcache_base_registration_t *none = NULL;
  const int code = cache->rcache_register(cache, at, bytes, 0, 0, &none);
  CHECK(none == NULL);
  return code;
}

static void errors_are_passed_on(void) {
  static const int codes[] = {OPAL_ERROR, OPAL_ERR_PERM, OPAL_ERR_UNREACH, OPAL_ERR_NOT_SUPPORTED, -4711};
  void *elsewhere = memory + 40 * page;
  for (size_t i = 0; i < sizeof codes / sizeof *codes; ++i) {
    device.refusal = codes[i];
    CHECK(code_of_register(elsewhere, page) == codes[i]);
  }
  device.refusal = OPAL_ERR_TEMP_OUT_OF_RESOURCE; /* callers evict after the other code only */
  CHECK(code_of_register(elsewhere, page) == OPAL_ERR_OUT_OF_RESOURCE);
  device.refusal = OPAL_SUCCESS;
  CHECK(code_of_register(elsewhere, 0) == OPAL_ERR_BAD_PARAM);
}

static void errors_of_deregister_are_passed_on(void) {
  const int open = device.open;
  mca_rcache_base_registration_t *own = get_with(memory, area, MCA_RCACHE_FLAGS_CACHE_BYPASS, 0);
  device.close_refusal = OPAL_ERR_RESOURCE_BUSY;
  CHECK(cache->rcache_deregister(cache, own) == OPAL_ERR_RESOURCE_BUSY);
  device.close_refusal = OPAL_SUCCESS;
  device.most = open + 1; /* a full device makes the cache retry the close */
  put(get(memory, page));
  CHECK(device.open == open + 1);
  device.most = 1000;
}

static void (*const tests[])(void) = {
    registration_describes_the_memory,
    same_memory_is_registered_once,
    more_access_is_registered_with_what_there_was,
    pieces_of_a_page_share_a_registration,
    neighbours_that_share_a_page_stay_apart,
    remapped_memory_is_registered_again,
    invalidated_while_held,
    bypass_is_registered_for_one_user,
    find_registers_nothing,
    full_device_evicts,
    errors_are_passed_on,
    errors_of_deregister_are_passed_on,
};

static void empty_cache(void) {
  while (cache->rcache_evict(cache)) {
  }
  CHECK(device.open == 0);
}

int main(void) {
  mca_rcache_base_resources_t calls = {"test", &device, sizeof(struct registration), register_mem, deregister_mem};
  cache = make_rcache(&calls);
  if (cache == NULL) {
    fprintf(stderr, "there is no cache\n");
    return 1;
  }
  memory = mmap(NULL, area, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  for (size_t i = 0; i < sizeof tests / sizeof *tests; ++i) {
    tests[i]();
    empty_cache();
  }
  get(memory, area); /* a user that never gives it back */
  CHECK(mca_rcache_base_module_destroy(cache) == OPAL_SUCCESS);
  CHECK(device.open == 0);
  CHECK(mca_base_framework_close(&opal_rcache_base_framework) == OPAL_SUCCESS);
  printf("%d registrations, %d failures\n", device.opened, failures);
  return failures == 0 ? 0 : 1;
}
