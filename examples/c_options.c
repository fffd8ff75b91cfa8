/* SPDX-License-Identifier: BSD-3-Clause */
/* A cache with a budget, which the environment can change. */
#include <pinfold/pinfold.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, pinfold_last_error()->message);
  return EXIT_FAILURE;
}

int main(void) {
  pinfold_options options;
  if (pinfold_options_init(&options, sizeof options) != PINFOLD_OK)
    return fail("pinfold_options_init");
  strcpy(options.name, "buffers");
  options.max_bytes = (size_t)64 << 20;
  options.full = PINFOLD_FULL_WAIT;
  if (pinfold_options_from_environment(&options) != PINFOLD_OK)
    return fail("pinfold_options_from_environment");
  printf("%s: at most %zu bytes\n", options.name, options.max_bytes);

  pinfold_cache *cache = NULL;
  if (pinfold_create_mlock(&options, &cache) != PINFOLD_OK)
    return fail("pinfold_create_mlock");
  if (pinfold_destroy(cache) != PINFOLD_OK)
    return fail("pinfold_destroy");
  return EXIT_SUCCESS;
}
