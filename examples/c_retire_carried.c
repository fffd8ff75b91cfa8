/* SPDX-License-Identifier: BSD-3-Clause */
/* Frees exported memory by agreement with an importer in another
   process. The program carries the messages, over a socket. */
#define _POSIX_C_SOURCE 200809L
#include <pinfold/release_carried.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { page = 4096, patience_ms = 5000, rank = 1 };

/* What the two say to each other beside the library's messages,
   from which the length tells it. */
struct offer {
  unsigned char handle[PINFOLD_MEMFD_HANDLE_BYTES];
  uint64_t address;
};
static const char release_now = 'r', is_leased = 'l';

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, pinfold_last_error()->message);
  return EXIT_FAILURE;
}

/* ---- The importer ---- */

static int send_answer(void *self, uint64_t exporter,
                       const void *message, size_t bytes,
                       pinfold_error *failure) {
  const int *channel = self; /* to the only exporter */
  (void)exporter;
  if (send(*channel, message, bytes, MSG_NOSIGNAL) == (ssize_t)bytes)
    return PINFOLD_OK;
  failure->native_kind = PINFOLD_NATIVE_POSIX;
  failure->native = errno;
  failure->message = "the exporter cannot be reached";
  return PINFOLD_E_DRIVER_ERROR;
}

static int import_until_closed(int channel) {
  pinfold_release_listener *listener = NULL;
  pinfold_cache *cache = NULL;
  if (pinfold_release_listener_create(send_answer, &channel,
                                      &listener) != PINFOLD_OK)
    return fail("pinfold_release_listener_create");
  if (pinfold_create_memfd_carried(listener, 0, NULL, &cache) !=
      PINFOLD_OK)
    return fail("pinfold_create_memfd_carried");

  struct offer of;
  if (recv(channel, &of, sizeof of, 0) != sizeof of)
    return EXIT_FAILURE;
  pinfold_lease lease = pinfold_import(
      cache, 1, of.handle, sizeof of.handle, of.address, page);
  if (lease.pin == 0) return fail("pinfold_import");
  printf("importer: has a lease on \"%s\"\n", (char *)lease.data);
  fflush(stdout);
  if (send(channel, &is_leased, 1, 0) != 1) return EXIT_FAILURE;

  char message[PINFOLD_RELEASE_MESSAGE_BYTES];
  ssize_t got;
  while ((got = recv(channel, message, sizeof message, 0)) > 0) {
    if (got > 1) { /* a request */
      if (pinfold_release_listener_receive(
              listener, message, (size_t)got) != PINFOLD_OK)
        return fail("pinfold_release_listener_receive");
      continue;
    }
    if (pinfold_release(lease) != PINFOLD_OK)
      return fail("pinfold_release");
    if (pinfold_release_listener_progress(listener) != PINFOLD_OK)
      return fail("pinfold_release_listener_progress");
  }

  lease = pinfold_import(cache, 1, of.handle, sizeof of.handle,
                         of.address, page);
  const int refused = lease.pin == 0 && pinfold_last_error()->code ==
                                            PINFOLD_E_STALE_HANDLE;
  if (pinfold_destroy(cache) != PINFOLD_OK)
    return fail("pinfold_destroy");
  if (pinfold_release_listener_destroy(listener) != PINFOLD_OK)
    return fail("pinfold_release_listener_destroy");
  puts(refused ? "importer: it is stale" : "importer: still there");
  fflush(stdout);
  return refused ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* ---- The exporter ---- */

static int receive_answer(pinfold_release_registry *registry,
                          int channel) {
  char message[PINFOLD_RELEASE_MESSAGE_BYTES];
  const ssize_t got = recv(channel, message, sizeof message, 0);
  if (got <= 0) /* its process has ended */
    return pinfold_release_registry_died(registry, rank);
  return pinfold_release_registry_receive(registry, rank, message,
                                          (size_t)got);
}

static int retire(pinfold_release_registry *registry,
                  uint64_t serial, int channel) {
  if (pinfold_release_registry_begin_retire(
          registry, serial, patience_ms) != PINFOLD_OK)
    return fail("pinfold_release_registry_begin_retire");
  char message[PINFOLD_RELEASE_MESSAGE_BYTES];
  size_t bytes = 0;
  while (pinfold_release_registry_next_request(
             registry, rank, message, sizeof message, &bytes) ==
             PINFOLD_OK &&
         bytes > 0)
    if (send(channel, message, bytes, 0) != (ssize_t)bytes)
      return EXIT_FAILURE;

  pinfold_retire_report report = {.size = sizeof report};
  if (receive_answer(registry, channel) != PINFOLD_OK ||
      pinfold_release_registry_wait(registry, serial, 0, &report) !=
          PINFOLD_OK)
    return fail("the first answer");
  printf("exporter: %u has it\n", (unsigned)report.holders);
  fflush(stdout);
  if (report.state != PINFOLD_RETIRE_ASKING) return EXIT_FAILURE;

  if (send(channel, &release_now, 1, 0) != 1) return EXIT_FAILURE;
  if (receive_answer(registry, channel) != PINFOLD_OK ||
      pinfold_release_registry_wait(registry, serial, 0, &report) !=
          PINFOLD_OK)
    return fail("the second answer");
  if (report.state != PINFOLD_RETIRE_FREED) return EXIT_FAILURE;
  puts("exporter: all have let it go");
  fflush(stdout);
  return pinfold_release_registry_forget(registry, serial);
}

static int export_to(int channel, int32_t importer) {
  pinfold_memfd_exporter *exporter = NULL;
  pinfold_memfd_buffer *buffer = NULL;
  pinfold_release_registry *registry = NULL;
  pinfold_release_id id;
  struct offer of;
  if (pinfold_memfd_exporter_create(PINFOLD_MEMFD_SERVE,
                                    &exporter) != PINFOLD_OK)
    return fail("pinfold_memfd_exporter_create");
  if (pinfold_memfd_allocate(exporter, page, &buffer) != PINFOLD_OK)
    return fail("pinfold_memfd_allocate");
  if (pinfold_memfd_handle(buffer, of.handle, sizeof of.handle) !=
      PINFOLD_OK)
    return fail("pinfold_memfd_handle");
  of.address = (uintptr_t)pinfold_memfd_data(buffer);
  strcpy(pinfold_memfd_data(buffer), "weights");

  if (pinfold_release_id_of(of.handle, sizeof of.handle, &id) !=
          PINFOLD_OK ||
      pinfold_release_registry_create(id.exporter, &registry) !=
          PINFOLD_OK ||
      pinfold_release_registry_add(registry, id.serial) !=
          PINFOLD_OK ||
      pinfold_release_registry_lend(registry, id.serial, rank,
                                    importer) != PINFOLD_OK)
    return fail("pinfold_release_registry");
  char said = 0;
  int result = EXIT_FAILURE;
  if (send(channel, &of, sizeof of, 0) == sizeof of &&
      recv(channel, &said, 1, 0) == 1 && said == is_leased)
    result = retire(registry, id.serial, channel);
  pinfold_memfd_free(buffer); /* safe: no importer has it */
  pinfold_release_registry_destroy(registry);
  pinfold_memfd_exporter_destroy(exporter);
  return result;
}

int main(void) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) != 0)
    return EXIT_FAILURE;
  const pid_t child = fork();
  if (child < 0) return EXIT_FAILURE;
  if (child == 0) {
    close(ends[0]);
    _exit(import_until_closed(ends[1]));
  }
  close(ends[1]);
  const int result = export_to(ends[0], (int32_t)child);
  close(ends[0]); /* ends the child's loop */
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0)
    return EXIT_FAILURE;
  return result;
}
