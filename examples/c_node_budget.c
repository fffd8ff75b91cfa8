/* SPDX-License-Identifier: BSD-3-Clause */
/* A cache that takes its registrations from an account, which
   other processes share. */
#include <pinfold/node_budget.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, pinfold_last_error()->message);
  return EXIT_FAILURE;
}

static int show(void *self, const pinfold_node_budget_member *one) {
  (void)self;
  printf("%s: %zu bytes, %lu requests refused\n", one->name,
         one->bytes, (unsigned long)one->refused);
  return 0;
}

int main(void) {
  pinfold_node_budget_options how = {0};
  how.size = sizeof how;
  how.max_bytes = (size_t)1 << 20;
  pinfold_node_budget *budget = NULL;
  if (pinfold_node_budget_open("c-example", &how, &budget) != 0)
    return fail("pinfold_node_budget_open");

  pinfold_options options;
  pinfold_options_init(&options, sizeof options);
  strcpy(options.node_budget, "c-example");
  pinfold_cache *cache = NULL;
  if (pinfold_create_mlock(&options, &cache) != PINFOLD_OK)
    return fail("pinfold_create_mlock");
  static char memory[4096];
  pinfold_lease lease = pinfold_acquire(cache, memory, sizeof memory,
                                        PINFOLD_LOCAL_READ);
  if (lease.pin == 0) return fail("pinfold_acquire");
  pinfold_node_budget_members(budget, show, NULL);

  pinfold_release(lease);
  pinfold_destroy(cache);
  pinfold_node_budget_close(budget);
  pinfold_node_budget_remove("c-example");
  return EXIT_SUCCESS;
}
