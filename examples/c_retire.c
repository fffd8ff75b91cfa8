/* SPDX-License-Identifier: BSD-3-Clause */
/* Frees exported memory by agreement with its importer: here a cache
   of the same process. */
#include <pinfold/release.h>

#include <stdio.h>
#include <stdlib.h>

enum { bytes = 65536, patience_ms = 100, long_ms = 5000 };

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, pinfold_last_error()->message);
  return EXIT_FAILURE;
}

int main(void) {
  const pinfold_exporter_options how = {.size = sizeof how,
                                        .release = 1};
  pinfold_memfd_exporter *exporter = NULL;
  if (pinfold_memfd_exporter_create_with(&how, &exporter) !=
      PINFOLD_OK)
    return fail("pinfold_memfd_exporter_create_with");
  pinfold_memfd_buffer *buffer = NULL;
  if (pinfold_memfd_allocate(exporter, bytes, &buffer) != PINFOLD_OK)
    return fail("pinfold_memfd_allocate");
  char handle[PINFOLD_MEMFD_HANDLE_BYTES];
  if (pinfold_memfd_handle(buffer, handle, sizeof handle) !=
      PINFOLD_OK)
    return fail("pinfold_memfd_handle");

  /* The importer, usually in another process. */
  pinfold_cache *cache = NULL;
  if (pinfold_create_memfd_releasing(0, NULL, &cache) != PINFOLD_OK)
    return fail("pinfold_create_memfd_releasing");
  const uint64_t address = (uintptr_t)pinfold_memfd_data(buffer);
  const pinfold_lease lease = pinfold_import(
      cache, 1, handle, sizeof handle, address, bytes);
  if (lease.pin == 0) return fail("pinfold_import");

  pinfold_retirement *ticket = NULL;
  if (pinfold_memfd_begin_retire(exporter, &buffer, patience_ms,
                                 &ticket) != PINFOLD_OK)
    return fail("pinfold_memfd_begin_retire");
  pinfold_retire_report report = {.size = sizeof report};
  if (pinfold_retirement_wait(ticket, 2 * patience_ms, &report) !=
      PINFOLD_OK)
    return fail("pinfold_retirement_wait");
  pinfold_release_holder late;
  size_t count = 0;
  if (pinfold_retirement_holders(ticket, &late, 1, &count) !=
      PINFOLD_OK)
    return fail("pinfold_retirement_holders");
  if (count > 0) printf("process %ld has a lease\n", (long)late.pid);

  if (pinfold_release(lease) != PINFOLD_OK)
    return fail("pinfold_release");
  if (pinfold_retirement_wait(ticket, long_ms, &report) !=
      PINFOLD_OK)
    return fail("pinfold_retirement_wait");
  puts(report.state == PINFOLD_RETIRE_FREED ? "freed" : "kept");
  pinfold_retirement_end(ticket);
  if (pinfold_destroy(cache) != PINFOLD_OK)
    return fail("pinfold_destroy");
  pinfold_memfd_exporter_destroy(exporter);
  return EXIT_SUCCESS;
}
