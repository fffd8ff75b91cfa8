/* SPDX-License-Identifier: BSD-3-Clause */
/* rcache_cases left: ends without destroying a cache.
 * rcache_cases pinfold|ucx [case...]: what UCX's callers expect of its registration cache, of the one that is named;
 * without names of cases, all that this cache is to pass. */
#include "rig.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned failed_expectations;

void expect_at(int holds, const char *what, const char *file, int line) {
  if (holds) return;
  __atomic_fetch_add(&failed_expectations, 1, __ATOMIC_SEQ_CST);
  printf("%s:%d: not so: %s\n", file, line, what);
}

/* Or else the test would show nothing. */
static int is_underneath(const char *cache) {
  Dl_info where;
  void *create = dlsym(RTLD_DEFAULT, "ucs_rcache_create");
  if (create == NULL || dladdr(create, &where) == 0) return 0;
  const int ours = strstr(where.dli_fname, "libpinfold-ucx") != NULL;
  return ours == (strcmp(cache, "pinfold") == 0);
}

static int is_wanted(const char *name, int usual, int count, char **wanted) {
  for (int i = 0; i < count; ++i) {
    if (strcmp(name, wanted[i]) == 0) return 1;
  }
  return count == 0 && usual;
}

static void run(const struct test_case *one) {
  const unsigned before = failed_expectations;
  one->run();
  printf("%s %s\n", failed_expectations == before ? "ok    " : "FAILED", one->name);
  fflush(stdout);
}

static int leave_a_cache(void) {
  const ucs_rcache_params_t usual = params();
  touch(make(&usual), map(page), page, read_write);
  return EXIT_SUCCESS;
}

int main(int count, char **arguments) {
  if (count == 2 && strcmp(arguments[1], "left") == 0) return leave_a_cache();
  if (count < 2 || !is_underneath(arguments[1])) {
    fputs("usage: rcache_cases pinfold|ucx [case...], with the named cache underneath\n", stderr);
    return 2;
  }
  unsigned ran = 0;
  const struct test_case *const groups[] = {requests, merging, limits, invalidations, failures, threads, beyond};
  for (size_t i = 0; i < sizeof groups / sizeof *groups; ++i) {
    for (const struct test_case *one = groups[i]; one->name != NULL; ++one) {
      const int usual = groups[i] != beyond || strcmp(arguments[1], "pinfold") == 0;
      if (!is_wanted(one->name, usual, count - 2, arguments + 2)) continue;
      run(one);
      ++ran;
    }
  }
  printf("%u cases over %s, %u expectations failed\n", ran, arguments[1], failed_expectations);
  return ran > 0 && failed_expectations == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
