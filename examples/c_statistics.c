/* SPDX-License-Identifier: BSD-3-Clause */
/* Prints the events, the entries and the counters of a cache. */
#include <pinfold/pinfold.h>

#include <stdio.h>
#include <stdlib.h>

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, pinfold_last_error()->message);
  return EXIT_FAILURE;
}

static void print_event(void *self, const pinfold_event *event) {
  int *events = self;
  ++*events;
  printf("%s: %s\n", event->cache, pinfold_event_name(event->kind));
}

static int print_entry(void *self, const pinfold_entry *entry) {
  (void)self;
  printf("%lu bytes by %s, %s\n", (unsigned long)entry->bytes,
         entry->kind, entry->state);
  return 0; /* go on */
}

int main(void) {
  int events = 0;
  pinfold_options options;
  pinfold_options_init(&options, sizeof options);
  options.flags = PINFOLD_STATISTICS_AT_EXIT;
  options.sink = print_event;
  options.sink_self = &events;
  pinfold_cache *cache = NULL;
  if (pinfold_create_mlock(&options, &cache) != PINFOLD_OK)
    return fail("pinfold_create_mlock");

  char *buffer = malloc(100000);
  if (buffer == NULL) return EXIT_FAILURE;
  const pinfold_lease lease =
      pinfold_acquire(cache, buffer, 100000, PINFOLD_LOCAL_READ);
  if (lease.pin == 0) return fail("pinfold_acquire");
  if (pinfold_dump(cache, print_entry, NULL) != 0)
    return fail("pinfold_dump");
  pinfold_release(lease);

  pinfold_statistics seen = {.size = sizeof seen};
  if (pinfold_statistics_of(cache, &seen) != PINFOLD_OK)
    return fail("pinfold_statistics_of");
  printf("%lu misses, %lu bytes open\n", (unsigned long)seen.misses,
         (unsigned long)seen.bytes_now);
  free(buffer);
  if (pinfold_destroy(cache) != PINFOLD_OK)
    return fail("pinfold_destroy");
  return events > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
