/* SPDX-License-Identifier: BSD-3-Clause */
/* A cache over a registrar of the program's own: mlock(2). */
#include <pinfold/pinfold.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static int failed(pinfold_error *failure, const char *call) {
  failure->native_kind = PINFOLD_NATIVE_POSIX;
  failure->native = errno;
  failure->message = call;
  return errno == ENOMEM ? PINFOLD_E_OUT_OF_RESOURCES
                         : PINFOLD_E_DRIVER_ERROR;
}

static int lock(void *self, const pinfold_open_request *what,
                pinfold_registration *made, pinfold_error *failure) {
  int *calls = self;
  ++*calls;
  if (mlock(what->address, what->bytes) != 0)
    return failed(failure, "mlock");
  made->words[0] = (uintptr_t)what->address;
  made->words[1] = what->bytes;
  return PINFOLD_OK;
}

static int unlock(void *self, const pinfold_registration *made,
                  pinfold_error *failure) {
  (void)self;
  void *address = (void *)(uintptr_t)made->words[0];
  if (munlock(address, made->words[1]) != 0)
    return failed(failure, "munlock");
  return PINFOLD_OK;
}

static int fail(const char *what) {
  char text[256];
  pinfold_describe_error(pinfold_last_error(), text, sizeof text);
  fprintf(stderr, "%s: %s\n", what, text);
  return EXIT_FAILURE;
}

int main(void) {
  int calls = 0;
  const pinfold_registrar registrar = {.size = sizeof registrar,
                                       .name = "mlock",
                                       .open = lock,
                                       .close = unlock};
  pinfold_cache *cache = NULL;
  if (pinfold_create(&registrar, &calls, NULL, &cache) != PINFOLD_OK)
    return fail("pinfold_create");

  char text[1024];
  pinfold_monitors(cache, text, sizeof text);
  printf("monitors: %s\n", text);

  char *buffer = malloc(100000);
  if (buffer == NULL) return EXIT_FAILURE;
  for (int i = 0; i < 1000; ++i) {
    const pinfold_lease lease =
        pinfold_acquire(cache, buffer, 100000, PINFOLD_LOCAL_READ);
    if (lease.pin == 0) return fail("pinfold_acquire");
    if (pinfold_release(lease) != PINFOLD_OK)
      return fail("pinfold_release");
  }
  free(buffer);

  pinfold_describe(cache, text, sizeof text);
  printf("%d calls of mlock; %s\n", calls, text);
  if (pinfold_destroy(cache) != PINFOLD_OK)
    return fail("pinfold_destroy");
  return EXIT_SUCCESS;
}
