/* SPDX-License-Identifier: BSD-3-Clause */
/* Locks a buffer once, and finds it locked 999 times. */
#include <pinfold/pinfold.h>

#include <stdio.h>
#include <stdlib.h>

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, pinfold_last_error()->message);
  return EXIT_FAILURE;
}

int main(void) {
  pinfold_cache *cache = NULL;
  if (pinfold_create_mlock(NULL, &cache) != PINFOLD_OK)
    return fail("pinfold_create_mlock");

  char *buffer = malloc(100000);
  if (buffer == NULL) return EXIT_FAILURE;
  for (int i = 0; i < 1000; ++i) {
    const pinfold_lease lease =
        pinfold_acquire(cache, buffer, 100000, PINFOLD_LOCAL_READ);
    if (lease.pin == 0) return fail("pinfold_acquire");
    /* A device may read the buffer here. */
    if (pinfold_release(lease) != PINFOLD_OK)
      return fail("pinfold_release");
  }
  free(buffer); /* needs no call to the cache */

  char text[1024];
  pinfold_describe(cache, text, sizeof text);
  puts(text);
  if (pinfold_destroy(cache) != PINFOLD_OK)
    return fail("pinfold_destroy");
  return EXIT_SUCCESS;
}
