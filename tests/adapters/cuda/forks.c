/* SPDX-License-Identifier: BSD-3-Clause */
/* Forks while a thread looks for functions of a driver that is not loaded yet. Each child loads the driver, and finds
 * its functions; the adapter reports a driver that it cannot change. Prints the number of children that did not end
 * well. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { children = 200, seconds_each = 100 };

static int ended; /* atomic */

static void *look(void *nothing) {
  while (!__atomic_load_n(&ended, __ATOMIC_RELAXED)) (void)dlsym(RTLD_DEFAULT, "cuNoSuchFunction");
  return nothing;
}

static void use_driver(void) {
  alarm(seconds_each);
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == NULL) _exit(1);
  for (int i = 0; i < 3; ++i)
    if (dlsym(library, "cuIpcCloseMemHandle") == NULL) _exit(2);
  _exit(0);
}

int main(void) {
  pthread_t looking;
  int failed = 0;
  if (pthread_create(&looking, NULL, look, NULL) != 0) return 1;
  for (int i = 0; i < children; ++i) {
    const pid_t child = fork();
    if (child < 0) return 1;
    if (child == 0) use_driver();
    int status = 0;
    failed += waitpid(child, &status, 0) != child || status != 0;
  }
  __atomic_store_n(&ended, 1, __ATOMIC_RELAXED);
  pthread_join(looking, NULL);
  printf("failed=%d\n", failed);
  return failed != 0;
}
