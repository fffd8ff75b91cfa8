/* SPDX-License-Identifier: BSD-3-Clause */
/* windows [rounds [bytes [spoiled rank]]]: in each round, every rank makes a window over fresh memory, puts into that
 * of the next rank, compares every byte of its own, and frees window and memory. Each rank names its first wrong byte.
 * The spoiled rank changes a byte that arrived. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static unsigned char expected(int rank, int round, size_t at) {
  return (unsigned char)(at * 31 + at / 4096 * 7 + (size_t)round * 13 + (size_t)rank * 101 + 1);
}

static unsigned char *map(size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) MPI_Abort(MPI_COMM_WORLD, 2);
  return memory;
}

static unsigned long wrong_bytes(const unsigned char *memory, int from, int round, size_t bytes) {
  unsigned long wrong = 0;
  size_t first = 0;
  for (size_t i = 0; i < bytes; ++i)
    if (memory[i] != expected(from, round, i) && wrong++ == 0) first = i;
  int rank;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (wrong > 0) printf("rank %d: round %d: byte %zu is not what rank %d put\n", rank, round, first, from);
  return wrong;
}

static unsigned long one_round(int round, size_t bytes, int spoiled) {
  int rank, ranks;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  unsigned char *source = map(bytes), *target = map(bytes);
  for (size_t i = 0; i < bytes; ++i) source[i] = expected(rank, round, i);
  MPI_Win window;
  MPI_Win_create(target, (MPI_Aint)bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  MPI_Win_fence(0, window);
  MPI_Put(source, (int)bytes, MPI_BYTE, (rank + 1) % ranks, 0, (int)bytes, MPI_BYTE, window);
  MPI_Win_fence(0, window);
  if (rank == spoiled) target[bytes / 2] ^= 1;
  const unsigned long wrong = wrong_bytes(target, (rank + ranks - 1) % ranks, round, bytes);
  MPI_Win_free(&window);
  munmap(source, bytes);
  munmap(target, bytes);
  return wrong;
}

int main(int count, char **arguments) {
  int rank, ranks;
  MPI_Init(&count, &arguments);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int rounds = count > 1 ? atoi(arguments[1]) : 20;
  const size_t bytes = count > 2 ? (size_t)atol(arguments[2]) : 1 << 20;
  const int spoiled = count > 3 ? atoi(arguments[3]) : -1;
  unsigned long wrong = 0, all = 0;
  for (int round = 0; round < rounds; ++round) wrong += one_round(round, bytes, spoiled);
  MPI_Allreduce(&wrong, &all, 1, MPI_UNSIGNED_LONG, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0) printf("%lu wrong bytes of %lu\n", all, (unsigned long)ranks * (unsigned long)rounds * bytes);
  fflush(stdout);  // a test tells by it a run that hangs before its end from one that hangs in MPI_Finalize
  MPI_Finalize();
  return all == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
