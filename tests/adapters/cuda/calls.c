/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls a driver twice, and prints what it returned. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  int (*close)(unsigned long) = NULL;
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  void *found = library != NULL ? dlsym(library, "cuIpcCloseMemHandle") : NULL;
  memcpy(&close, &found, sizeof close);
  if (close == NULL) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  printf("%d", close(4096));
  printf(" %d\n", close(4096));
  return 0;
}
