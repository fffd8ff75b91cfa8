/* SPDX-License-Identifier: BSD-3-Clause */
/* A child exports a buffer; its parent imports and reads it. */
#define _POSIX_C_SOURCE 200809L
#include <pinfold/pinfold.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct message { /* what the child tells its parent */
  unsigned char handle[PINFOLD_MEMFD_HANDLE_BYTES];
  uint64_t address;
};

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, pinfold_last_error()->message);
  return EXIT_FAILURE;
}

static int export_until_closed(int to_parent, int from_parent) {
  pinfold_memfd_exporter *exporter = NULL;
  pinfold_memfd_buffer *buffer = NULL;
  struct message message;
  if (pinfold_memfd_exporter_create(PINFOLD_MEMFD_SERVE,
                                    &exporter) != PINFOLD_OK)
    return fail("pinfold_memfd_exporter_create");
  if (pinfold_memfd_allocate(exporter, 4096, &buffer) != PINFOLD_OK)
    return fail("pinfold_memfd_allocate");
  if (pinfold_memfd_handle(buffer, message.handle,
                           sizeof message.handle) != PINFOLD_OK)
    return fail("pinfold_memfd_handle");
  char *data = pinfold_memfd_data(buffer);
  strcpy(data, "hello");
  message.address = (uintptr_t)data;
  char end;
  if (write(to_parent, &message, sizeof message) != sizeof message ||
      read(from_parent, &end, 1) != 0)
    return EXIT_FAILURE;
  pinfold_memfd_free(buffer);
  pinfold_memfd_exporter_destroy(exporter);
  return EXIT_SUCCESS;
}

static int import(uint64_t peer, const struct message *message) {
  pinfold_cache *cache = NULL;
  if (pinfold_create_memfd(0, NULL, &cache) != PINFOLD_OK)
    return fail("pinfold_create_memfd");
  const pinfold_lease lease =
      pinfold_import(cache, peer, message->handle,
                     sizeof message->handle, message->address, 6);
  if (lease.pin == 0) return fail("pinfold_import");
  puts(lease.data); /* hello */
  const int right = strcmp(lease.data, "hello") == 0;
  pinfold_release(lease);
  if (pinfold_destroy(cache) != PINFOLD_OK)
    return fail("pinfold_destroy");
  return right ? EXIT_SUCCESS : EXIT_FAILURE;
}

int main(void) {
  int up[2], down[2];
  if (pipe(up) != 0 || pipe(down) != 0) return EXIT_FAILURE;
  const pid_t child = fork();
  if (child == 0) {
    close(down[1]);
    _exit(export_until_closed(up[1], down[0]));
  }
  close(up[1]);
  struct message message;
  int result = EXIT_FAILURE;
  if (read(up[0], &message, sizeof message) == sizeof message)
    result = import((uint64_t)child, &message);
  close(down[1]); /* ends the child */
  int status = 0;
  waitpid(child, &status, 0);
  return status == 0 ? result : EXIT_FAILURE;
}
