/* SPDX-License-Identifier: BSD-3-Clause */
/* one_sided <rounds>: rank 0 puts a buffer into a window of rank 1, which compares every byte. The pages behind the
 * buffer change after each second round. Rank 1 prints how many bytes were wrong. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { bytes = 1 << 20 };

static char *mapped(void *at) {
  char *memory =
      mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at != NULL ? MAP_FIXED : 0), -1, 0);
  if (memory == MAP_FAILED) MPI_Abort(MPI_COMM_WORLD, 1);
  return memory;
}

static size_t other_than(const char *memory, char expected) {
  size_t count = 0;
  for (size_t at = 0; at < bytes; ++at) count += memory[at] != expected;
  return count;
}

int main(int count, char **words) {
  MPI_Init(&count, &words);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int rounds = count > 1 ? atoi(words[1]) : 20;
  char *target = mapped(NULL);
  char *source = mapped(NULL);
  MPI_Win window;
  MPI_Win_create(target, bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  size_t wrong = 0;
  for (int round = 0; round < rounds; ++round) {
    memset(source, round + 1, bytes);
    MPI_Win_fence(0, window);
    if (rank == 0) MPI_Put(source, bytes, MPI_BYTE, 1, 0, bytes, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    if (rank == 1) wrong += other_than(target, (char)(round + 1));
    if (round % 2 == 1) mapped(source);
  }
  MPI_Win_free(&window);
  if (rank == 1) printf("rounds=%d wrong=%zu\n", rounds, wrong);
  MPI_Finalize();
  return wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
