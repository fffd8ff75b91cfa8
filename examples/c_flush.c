/* SPDX-License-Identifier: BSD-3-Clause */
/* Deregisters everything before a sleep, and registers it again. */
#include <pinfold/pinfold.h>

#include <stdio.h>
#include <stdlib.h>

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, pinfold_last_error()->message);
  return EXIT_FAILURE;
}

int main(void) {
  pinfold_options options;
  pinfold_options_init(&options, sizeof options);
  options.monitor = PINFOLD_MONITOR_MANUAL; /* or a proven one */
  options.flags = PINFOLD_DEFERRED_CLOSES;
  pinfold_cache *cache = NULL;
  if (pinfold_create_mlock(&options, &cache) != PINFOLD_OK)
    return fail("pinfold_create_mlock");

  char *buffer = malloc(100000);
  if (buffer == NULL) return EXIT_FAILURE;
  const pinfold_lease lease =
      pinfold_acquire(cache, buffer, 100000, PINFOLD_LOCAL_READ);
  if (lease.pin == 0) return fail("pinfold_acquire");
  if (pinfold_quiesce(cache) != PINFOLD_E_IN_USE_CONFLICT)
    return EXIT_FAILURE;  /* a lease is out */
  pinfold_release(lease); /* closes nothing, and is fast */
  if (pinfold_progress(cache) != PINFOLD_OK)
    return fail("pinfold_progress");
  if (pinfold_quiesce(cache) != PINFOLD_OK)
    return fail("pinfold_quiesce");

  /* ... the checkpoint ... */

  pinfold_restoration *restoration = NULL;
  if (pinfold_restore(cache, 4, &restoration) != PINFOLD_OK)
    return fail("pinfold_restore");
  pinfold_restoration_wait(restoration, UINT64_MAX);
  pinfold_restore_progress now = {.size = sizeof now};
  if (pinfold_restoration_progress(restoration, &now) != PINFOLD_OK)
    return fail("a registration");
  printf("%d of %d restored\n", (int)now.restored, (int)now.total);
  pinfold_end_restoration(restoration);
  pinfold_invalidate(cache, buffer, 100000);
  free(buffer);
  if (pinfold_destroy(cache) != PINFOLD_OK)
    return fail("pinfold_destroy");
  return EXIT_SUCCESS;
}
