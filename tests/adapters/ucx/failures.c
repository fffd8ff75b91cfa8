/* SPDX-License-Identifier: BSD-3-Clause */
/* Caches and regions that cannot be made. */
#include "rig.h"

static ucs_status_t create(const ucs_rcache_params_t *params) {
  ucs_rcache_t *cache;
  const ucs_status_t status = ucs_rcache_create(params, "refused", NULL, &cache);
  if (status == UCS_OK) ucs_rcache_destroy(cache);
  return status;
}

static void wrong_alignment(void) {
  static const size_t wrong[] = {0, 8, 24, 2 * page};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; ++i) {
    ucs_rcache_params_t one = params();
    one.alignment = wrong[i];
    expect(create(&one) == UCS_ERR_INVALID_PARAM);
  }
}

static void small_region(void) {
  ucs_rcache_params_t one = params();
  one.region_struct_size = sizeof(ucs_rcache_region_t) - 1;
  expect(create(&one) == UCS_ERR_INVALID_PARAM);
}

static void unknown_event(void) {
  ucs_rcache_params_t one = params();
  one.ucm_events |= 1 << 30;
  expect(create(&one) == UCS_ERR_INVALID_PARAM);
}

static void refused_by_the_driver(void) {
  static const ucs_status_t statuses[] = {UCS_ERR_IO_ERROR, UCS_ERR_NO_MEMORY, UCS_ERR_INVALID_ADDR,
                                          UCS_ERR_UNSUPPORTED};
  const ucs_rcache_params_t usual = params();
  ucs_rcache_t *cache = make(&usual);
  char *memory = map(page);
  for (size_t i = 0; i < sizeof statuses / sizeof *statuses; ++i) {
    ucs_rcache_region_t *region;
    driver.fails = statuses[i];
    expect(ucs_rcache_get(cache, memory, page, read_write, NULL, &region) == statuses[i]);
    expect(driver.registered == i);
    driver.fails = UCS_OK;
    touch(cache, memory, page, read_write);
    expect(open_now() == 1);
    remap(memory, page);
  }
  ucs_rcache_destroy(cache);
  expect(open_now() == 0);
  munmap(memory, page);
}

static void memory_without_access(void) {
  const ucs_rcache_params_t usual = params();
  ucs_rcache_t *cache = make(&usual);
  char *memory = map(page);
  mprotect(memory, page, PROT_NONE);
  ucs_rcache_region_t *region;
  expect(ucs_rcache_get(cache, memory, page, read_write, NULL, &region) == UCS_ERR_IO_ERROR);
  ucs_rcache_destroy(cache);
  expect(driver.registered == 0);
  munmap(memory, page);
}

const struct test_case failures[] = {{"wrong_alignment", wrong_alignment},
                                     {"small_region", small_region},
                                     {"unknown_event", unknown_event},
                                     {"refused_by_the_driver", refused_by_the_driver},
                                     {"memory_without_access", memory_without_access},
                                     {NULL, NULL}};
