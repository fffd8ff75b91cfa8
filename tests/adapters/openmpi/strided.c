/* SPDX-License-Identifier: BSD-3-Clause */
/* Rank 0 puts and gets columns of a matrix by a vector type; every element is compared.
 *   strided <elements> <bytes of an element> <bytes of a row> <offset of the first> <rounds> */
#include "memory.h"
#include "pattern.h"

#include <mpi.h>

#include <stdlib.h>
#include <string.h>

static int rank;
static size_t count, size, row;

static long wrong_elements(const unsigned char *column, unsigned message) {
  unsigned char *expected = malloc(count * row);
  if (expected == NULL) fail_at("malloc");
  fill(expected, count * row, message);
  long wrong = 0;
  for (size_t i = 0; i < count; ++i) wrong += memcmp(column + i * row, expected + i * row, size) != 0;
  free(expected);
  return wrong;
}

/* Gets the column back into a cleared one. */
static long put_and_get(unsigned char *column, const unsigned char *exposed, unsigned message, MPI_Datatype type,
                        MPI_Win window) {
  long wrong = 0;
  fill(column, count * row, message);
  MPI_Win_fence(0, window);
  if (rank == 0) MPI_Put(column, 1, type, 1, 0, 1, type, window);
  MPI_Win_fence(0, window);
  if (rank == 1) wrong += wrong_elements(exposed, message);
  if (rank == 0) memset(column, 0, count * row);
  if (rank == 0) MPI_Get(column, 1, type, 1, 0, 1, type, window);
  MPI_Win_fence(0, window);
  if (rank == 0) wrong += wrong_elements(column, message);
  return wrong;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  if (argc < 6) return 2;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  count = (size_t)atol(argv[1]), size = (size_t)atol(argv[2]), row = (size_t)atol(argv[3]);
  const size_t offset = (size_t)atol(argv[4]);
  const unsigned rounds = (unsigned)atoi(argv[5]);
  MPI_Datatype type;
  MPI_Type_vector((int)count, (int)size, (int)row, MPI_BYTE, &type);
  MPI_Type_commit(&type);
  struct buffer own = {.bytes = count * row + offset}, shown = {.bytes = count * row};
  renew(&own, 1);
  renew(&shown, 1);
  MPI_Win window;
  MPI_Win_create(shown.data, (MPI_Aint)shown.bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
  long wrong = 0;
  for (unsigned message = 1; message <= rounds; ++message)
    wrong += put_and_get(own.data + offset, shown.data, message, type, window);
  printf("rank %d: %u columns of %zu elements, %ld wrong elements\n", rank, rounds, count, wrong);
  MPI_Win_free(&window);
  MPI_Type_free(&type);
  MPI_Finalize();
  return wrong == 0 ? 0 : 1;
}
