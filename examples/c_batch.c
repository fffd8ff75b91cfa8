/* SPDX-License-Identifier: BSD-3-Clause */
/* Acquires many buffers with one call, a long one piece by piece. */
#include <pinfold/pinfold.h>

#include <stdio.h>
#include <stdlib.h>

enum { buffers = 64, buffer_bytes = 8192, long_bytes = 1 << 20 };

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, pinfold_last_error()->message);
  return EXIT_FAILURE;
}

int main(void) {
  pinfold_cache *cache = NULL;
  if (pinfold_create_mlock(NULL, &cache) != PINFOLD_OK)
    return fail("pinfold_create_mlock");

  char *memory = malloc((size_t)buffers * buffer_bytes + long_bytes);
  if (memory == NULL) return EXIT_FAILURE;
  pinfold_range ranges[buffers];
  for (int i = 0; i < buffers; ++i) {
    ranges[i].base = (uintptr_t)memory + (uint64_t)i * buffer_bytes;
    ranges[i].bytes = buffer_bytes;
  }
  pinfold_lease leases[buffers];
  if (pinfold_acquire_batch(cache, ranges, buffers,
                            PINFOLD_LOCAL_READ, NULL,
                            leases) != PINFOLD_OK)
    return fail("pinfold_acquire_batch");
  if (pinfold_release_batch(leases, buffers) != PINFOLD_OK)
    return fail("pinfold_release_batch");

  const pinfold_chunk_options how = {.size = sizeof how,
                                     .chunk_bytes = 262144};
  pinfold_chunks *chunks = NULL;
  if (pinfold_acquire_chunks(cache, memory + buffers * buffer_bytes,
                             long_bytes, PINFOLD_LOCAL_READ, &how,
                             &chunks) != PINFOLD_OK)
    return fail("pinfold_acquire_chunks");
  pinfold_range piece;
  pinfold_lease lease;
  int code;
  while ((code = pinfold_next_chunk(chunks, &piece, &lease)) ==
         PINFOLD_OK) {
    /* Later pieces are registered while a device uses this one. */
    printf("%lu bytes\n", (unsigned long)piece.bytes);
    if (pinfold_release(lease) != PINFOLD_OK)
      return fail("pinfold_release");
  }
  if (code != PINFOLD_E_CLOSED) return fail("pinfold_next_chunk");
  if (pinfold_end_chunks(chunks) != PINFOLD_OK)
    return fail("pinfold_end_chunks");
  free(memory);
  if (pinfold_destroy(cache) != PINFOLD_OK)
    return fail("pinfold_destroy");
  return EXIT_SUCCESS;
}
