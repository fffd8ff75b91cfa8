/* SPDX-License-Identifier: BSD-3-Clause */
/* Two ranks exchange messages, whose memory is replaced in each round, and compare every byte.
 *   remap one-sided|two-sided|dynamic map|malloc <rounds> <bytes> [fork] */
#include "memory.h"
#include "pattern.h"

#include <mpi.h>

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int rank;
static unsigned message; /* the same on both ranks */
static long wrong;

/* A child that writes the buffer, so that the pages are copied under the parent's registrations. */
static void fork_and_write(struct buffer *one) {
  const pid_t child = fork();
  if (child < 0) fail_at("fork");
  if (child == 0) {
    memset(one->data, 0, one->bytes);
    unmap(one);
    _exit(0);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child || status != 0) {
    fprintf(stderr, "the child ended with %#x\n", (unsigned)status);
    ++wrong;
  }
}

/* Rank 0 sends, rank 1 answers from the same buffer, twice. */
static void two_sided(struct buffer *one) {
  for (int turn = 0; turn < 4; ++turn) {
    ++message;
    if (rank == turn % 2) {
      fill(one->data, one->bytes, message);
      MPI_Send(one->data, (int)one->bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD);
    } else {
      MPI_Recv(one->data, (int)one->bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      wrong += wrong_bytes(one->data, one->bytes, message);
    }
  }
}

static void put(struct buffer *one, MPI_Aint where, MPI_Win window) {
  fill(one->data, one->bytes, message);
  MPI_Put(one->data, (int)one->bytes, MPI_BYTE, 1, where, (int)one->bytes, MPI_BYTE, window);
}

static void get(struct buffer *one, MPI_Aint where, MPI_Win window) {
  memset(one->data, 0, one->bytes);
  MPI_Get(one->data, (int)one->bytes, MPI_BYTE, 1, where, (int)one->bytes, MPI_BYTE, window);
}

/* Rank 0 puts into the exposed memory of rank 1, and gets it back into the same buffer; twice. */
static void one_sided(struct buffer *one, MPI_Aint where, const unsigned char *exposed, MPI_Win window) {
  for (int turn = 0; turn < 2; ++turn) {
    ++message;
    MPI_Win_fence(0, window);
    if (rank == 0) put(one, where, window);
    MPI_Win_fence(0, window);
    if (rank == 1) wrong += wrong_bytes(exposed, one->bytes, message);
    if (rank == 0) get(one, where, window);
    MPI_Win_fence(0, window);
    if (rank == 0) wrong += wrong_bytes(one->data, one->bytes, message);
  }
}

/* As one_sided, where rank 1 exposes its buffer for the round only. */
static void dynamic(struct buffer *one, MPI_Win window) {
  MPI_Aint where = 0;
  if (rank == 1) {
    MPI_Win_attach(window, one->data, (MPI_Aint)one->bytes);
    MPI_Get_address(one->data, &where);
  }
  MPI_Bcast(&where, 1, MPI_AINT, 1, MPI_COMM_WORLD);
  one_sided(one, where, one->data, window);
  if (rank == 1) MPI_Win_detach(window, one->data);
  MPI_Barrier(MPI_COMM_WORLD);
}

static MPI_Win make_window(const char *how, size_t bytes, unsigned char **exposed) {
  MPI_Win window = MPI_WIN_NULL;
  if (strcmp(how, "dynamic") == 0) MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  if (strcmp(how, "one-sided") != 0) return window;
  struct buffer memory = {.bytes = bytes};
  renew(&memory, 1);
  MPI_Win_create(memory.data, (MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  *exposed = memory.data;
  return window;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  if (argc < 5) return 2;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const char *how = argv[1];
  const unsigned rounds = (unsigned)atoi(argv[3]);
  struct buffer one = {.of_malloc = strcmp(argv[2], "malloc") == 0, .bytes = (size_t)atol(argv[4])};
  unsigned char *exposed = NULL;
  MPI_Win window = make_window(how, one.bytes, &exposed);
  for (unsigned round = 0; round < rounds; ++round) {
    renew(&one, round);
    if (argc > 5) fork_and_write(&one);
    if (strcmp(how, "two-sided") == 0) two_sided(&one);
    if (strcmp(how, "one-sided") == 0) one_sided(&one, 0, exposed, window);
    if (strcmp(how, "dynamic") == 0) dynamic(&one, window);
  }
  printf("rank %d: %u messages of %zu bytes, %ld wrong bytes\n", rank, message, one.bytes, wrong);
  if (window != MPI_WIN_NULL) MPI_Win_free(&window);
  MPI_Finalize();
  return wrong == 0 && message > 0 ? 0 : 1;
}
