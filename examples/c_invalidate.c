/* SPDX-License-Identifier: BSD-3-Clause */
/* A program that tells its cache itself that memory goes. */
#include <pinfold/pinfold.h>

#include <stdio.h>
#include <stdlib.h>

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, pinfold_last_error()->message);
  return EXIT_FAILURE;
}

static int use(pinfold_cache *cache, const char *buffer,
               size_t bytes) {
  const pinfold_lease lease =
      pinfold_acquire(cache, buffer, bytes, PINFOLD_LOCAL_READ);
  return lease.pin == 0 ? pinfold_last_error()->code
                        : pinfold_release(lease);
}

int main(void) {
  pinfold_options options;
  pinfold_options_init(&options, sizeof options);
  options.monitor = PINFOLD_MONITOR_MANUAL;
  pinfold_cache *cache = NULL;
  if (pinfold_create_mlock(&options, &cache) != PINFOLD_OK)
    return fail("pinfold_create_mlock");

  for (int round = 0; round < 3; ++round) {
    char *buffer = malloc(100000); /* often the same address */
    if (buffer == NULL) return EXIT_FAILURE;
    for (int i = 0; i < 100; ++i)
      if (use(cache, buffer, 100000) != PINFOLD_OK)
        return fail("pinfold_acquire");
    pinfold_announce_gone(buffer, 100000); /* before it goes */
    free(buffer);
  }

  pinfold_statistics seen = {.size = sizeof seen};
  if (pinfold_statistics_of(cache, &seen) != PINFOLD_OK)
    return fail("pinfold_statistics_of");
  printf("%lu hits, %lu misses\n", (unsigned long)seen.hits,
         (unsigned long)seen.misses); /* 297 hits, 3 misses */
  if (pinfold_destroy(cache) != PINFOLD_OK)
    return fail("pinfold_destroy");
  return seen.misses == 3 ? EXIT_SUCCESS : EXIT_FAILURE;
}
