/* SPDX-License-Identifier: BSD-3-Clause */
/* A cache in C over a registrar of the program's own, which locks memory with mlock(2). */
#include <pinfold/pinfold.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static int lock(void *self, const pinfold_open_request *what, pinfold_registration *made, pinfold_error *failure) {
  int *calls = self;
  ++*calls;
  if (mlock(what->address, what->bytes) != 0) {
    failure->native_kind = PINFOLD_NATIVE_POSIX;
    failure->native = errno;
    failure->message = "mlock";
    return errno == ENOMEM ? PINFOLD_E_OUT_OF_RESOURCES : PINFOLD_E_DRIVER_ERROR;
  }
  made->words[0] = (uintptr_t)what->address;
  made->words[1] = what->bytes;
  return PINFOLD_OK;
}

static int unlock(void *self, const pinfold_registration *made, pinfold_error *failure) {
  (void)self;
  if (munlock((const void *)(uintptr_t)made->words[0], made->words[1]) == 0) return PINFOLD_OK;
  failure->native_kind = PINFOLD_NATIVE_POSIX;
  failure->native = errno;
  failure->message = "munlock";
  return PINFOLD_E_DRIVER_ERROR;
}

static int give_up(const char *what) {
  char text[256];
  pinfold_describe_error(pinfold_last_error(), text, sizeof text);
  fprintf(stderr, "%s: %s\n", what, text);
  return EXIT_FAILURE;
}

int main(void) {
  int calls = 0;
  pinfold_registrar registrar = {.size = sizeof registrar, .name = "mlock", .open = lock, .close = unlock};
  pinfold_cache *cache = NULL;
  if (pinfold_create(&registrar, &calls, NULL, &cache) != PINFOLD_OK) return give_up("pinfold_create");

  char text[512];
  pinfold_monitors(cache, text, sizeof text);
  printf("monitors: %s\n", text);

  char *buffer = malloc(100000);
  if (buffer == NULL) return EXIT_FAILURE;
  for (int i = 0; i < 1000; ++i) {
    const pinfold_lease lease = pinfold_acquire(cache, buffer, 100000, PINFOLD_LOCAL_READ);
    if (lease.pin == 0) return give_up("pinfold_acquire");
    if (pinfold_release(lease) != PINFOLD_OK) return give_up("pinfold_release");
  }
  free(buffer);

  pinfold_describe(cache, text, sizeof text);
  printf("%d calls of mlock; %s\n", calls, text);
  return pinfold_destroy(cache) == PINFOLD_OK ? EXIT_SUCCESS : give_up("pinfold_destroy");
}
