/* SPDX-License-Identifier: BSD-3-Clause */
/* Asks for too much, and prints why that fails. */
#include <pinfold/pinfold.h>

#include <stdio.h>
#include <stdlib.h>

static void print_failure(void) {
  const pinfold_error *failure = pinfold_last_error();
  char line[256];
  pinfold_describe_error(failure, line, sizeof line);
  printf("%s (%d): %s\n", pinfold_error_name(failure->code),
         failure->code, line);
}

int main(void) {
  pinfold_options options;
  pinfold_options_init(&options, sizeof options);
  options.max_bytes = 4096;
  pinfold_cache *cache = NULL;
  if (pinfold_create_mlock(&options, &cache) != PINFOLD_OK) {
    print_failure();
    return EXIT_FAILURE;
  }

  static char buffer[100000];
  const pinfold_lease lease = pinfold_acquire(
      cache, buffer, sizeof buffer, PINFOLD_LOCAL_READ);
  if (lease.pin != 0) return EXIT_FAILURE;
  print_failure(); /* larger_than_budget (-7): ... */
  const int code = pinfold_last_error()->code;
  if (pinfold_destroy(cache) != PINFOLD_OK) return EXIT_FAILURE;
  return code == PINFOLD_E_LARGER_THAN_BUDGET ? EXIT_SUCCESS
                                              : EXIT_FAILURE;
}
