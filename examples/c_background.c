/* SPDX-License-Identifier: BSD-3-Clause */
/* Registers a long buffer in the background, and uses the part that
   is ready. */
#include <pinfold/background.h>

#include <stdio.h>
#include <stdlib.h>

enum { pieces = 16, piece_bytes = 65536, parts_of_a_transfer = 4 };

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, pinfold_last_error()->message);
  return EXIT_FAILURE;
}

int main(void) {
  pinfold_cache *cache = NULL;
  if (pinfold_create_mlock(NULL, &cache) != PINFOLD_OK)
    return fail("pinfold_create_mlock");

  const size_t bytes = (size_t)pieces * piece_bytes;
  char *memory = malloc(bytes);
  if (memory == NULL) return EXIT_FAILURE;
  const pinfold_range whole = {(uintptr_t)memory, bytes};
  const pinfold_background_options how = {
      .size = sizeof how, .piece_bytes = piece_bytes, .workers = 2};
  pinfold_background *ticket = NULL;
  if (pinfold_register_in_background(cache, &whole, 1,
                                     PINFOLD_LOCAL_READ, &how,
                                     &ticket) != PINFOLD_OK)
    return fail("pinfold_register_in_background");

  /* The first transfer does not wait for all of the buffer. */
  const size_t first = (size_t)3 * piece_bytes;
  if (pinfold_background_wait_until_ready(ticket, whole.base + first,
                                          10000) != PINFOLD_OK)
    return fail("pinfold_background_wait_until_ready");
  pinfold_large *lease = NULL;
  if (pinfold_background_acquire(ticket, memory, first, &lease) !=
      PINFOLD_OK)
    return fail("pinfold_background_acquire");
  pinfold_part parts[parts_of_a_transfer];
  size_t count = 0;
  if (pinfold_large_list(lease, memory, first, parts,
                         parts_of_a_transfer, &count) != PINFOLD_OK)
    return fail("pinfold_large_list");
  for (size_t i = 0; i < count; ++i)
    printf("%lu bytes\n", (unsigned long)parts[i].bytes);
  if (pinfold_large_release(lease) != PINFOLD_OK)
    return fail("pinfold_large_release");

  if (pinfold_background_wait(ticket, PINFOLD_NO_TIMEOUT) !=
      PINFOLD_OK)
    return fail("pinfold_background_wait");
  if (pinfold_background_end(ticket) != PINFOLD_OK)
    return fail("pinfold_background_end");
  if (pinfold_destroy(cache) != PINFOLD_OK)
    return fail("pinfold_destroy");
  free(memory);
  return EXIT_SUCCESS;
}
