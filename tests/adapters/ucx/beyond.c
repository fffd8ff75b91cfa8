/* SPDX-License-Identifier: BSD-3-Clause */
/* What UCX's own cache does not do: the first aborts the program, the second leaves a region of earlier memory. */
#include "rig.h"

#include <sys/syscall.h>
#include <unistd.h>

static void destroyed_in_use(void) {
  const ucs_rcache_params_t usual = params();
  ucs_rcache_t *cache = make(&usual);
  char *memory = map(page);
  get(cache, memory, page, read_write);
  ucs_rcache_destroy(cache);
  expect(driver.deregistered == 1);
  munmap(memory, page);
}

static void remapped_by_system_call(void) {
  const ucs_rcache_params_t usual = params();
  ucs_rcache_t *cache = make(&usual);
  char *memory = map(page);
  const unsigned id = touch(cache, memory, page, read_write);
  const long flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  expect(syscall(SYS_mmap, memory, (long)page, (long)read_write, flags, -1L, 0L) == (long)memory);
  expect(touch(cache, memory, page, read_write) > id);
  ucs_rcache_destroy(cache);
  expect(open_now() == 0);
  munmap(memory, page);
}

const struct test_case beyond[] = {
    {"destroyed_in_use", destroyed_in_use}, {"remapped_by_system_call", remapped_by_system_call}, {NULL, NULL}};
