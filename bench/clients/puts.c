/* SPDX-License-Identifier: BSD-3-Clause */
/* Rank 0 puts into the window of rank 1 from many buffers in turn, as a program does whose data lies in many places.
 *   puts <buffers> <bytes of each> <threads of rank 0> <milliseconds>
 * Prints how many puts a second all threads made, after each buffer was put once. */
#include <mpi.h>

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { most_threads = 16, puts_between_flushes = 32 };

struct work {
  size_t buffers, bytes, threads;
  double seconds;
  unsigned char *memory; /* of all buffers, one behind the other */
  size_t *order;         /* a permutation of the buffers, so that neighbours are not put in turn */
  MPI_Win windows[most_threads];
};

struct thread {
  pthread_t id;
  const struct work *all;
  size_t number;
  double puts_per_second;
};

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void fail(const char *what) {
  fprintf(stderr, "puts: %s\n", what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static void put(const struct thread *self, size_t turn) {
  const struct work *all = self->all;
  const size_t own = all->buffers / all->threads;
  const size_t which = all->order[self->number * own + turn % own];
  MPI_Put(all->memory + which * all->bytes, (int)all->bytes, MPI_BYTE, 1, 0, (int)all->bytes, MPI_BYTE,
          all->windows[self->number]);
  if (turn % puts_between_flushes == puts_between_flushes - 1) MPI_Win_flush(1, all->windows[self->number]);
}

static void *run(void *argument) {
  struct thread *self = argument;
  const size_t own = self->all->buffers / self->all->threads;
  const MPI_Win window = self->all->windows[self->number];
  MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, window);
  size_t turn = 0;
  while (turn < own) put(self, turn++);
  MPI_Win_flush(1, window);
  const size_t first = turn;
  const double start = now();
  double end = start;
  for (; end < start + self->all->seconds; end = now())
    for (int i = 0; i < puts_between_flushes; ++i) put(self, turn++);
  MPI_Win_flush(1, window);
  self->puts_per_second = (double)(turn - first) / (now() - start);
  MPI_Win_unlock(1, window);
  return NULL;
}

/* Fisher and Yates, with the same order in each run. */
static void shuffle(size_t *order, size_t count) {
  uint64_t state = 1;
  for (size_t i = 0; i < count; ++i) order[i] = i;
  for (size_t i = count; i > 1; --i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const size_t other = (size_t)(state >> 33) % i;
    const size_t moved = order[i - 1];
    order[i - 1] = order[other];
    order[other] = moved;
  }
}

static void put_from_all(struct work *all) {
  all->memory = mmap(NULL, all->buffers * all->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  all->order = malloc(all->buffers * sizeof *all->order);
  if (all->memory == MAP_FAILED || all->order == NULL) fail("no memory for so many buffers");
  memset(all->memory, 1, all->buffers * all->bytes);
  shuffle(all->order, all->buffers);
  struct thread threads[most_threads];
  for (size_t i = 0; i < all->threads; ++i) {
    threads[i] = (struct thread){.all = all, .number = i};
    if (pthread_create(&threads[i].id, NULL, run, &threads[i]) != 0) fail("no thread");
  }
  double sum = 0;
  for (size_t i = 0; i < all->threads; ++i) {
    pthread_join(threads[i].id, NULL);
    sum += threads[i].puts_per_second;
  }
  printf("puts_per_second=%.0f\n", sum);
  munmap(all->memory, all->buffers * all->bytes);
  free(all->order);
}

/* Rank 1 leaves its processor to the threads that move the data. */
static void sleep_until_all_are_here(void) {
  const struct timespec pause = {.tv_nsec = 1000000};
  MPI_Request request;
  MPI_Ibarrier(MPI_COMM_WORLD, &request);
  for (int done = 0; !done; nanosleep(&pause, NULL)) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv) {
  int provided = 0, rank = 0, ranks = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 5 || ranks != 2) fail("puts <buffers> <bytes> <threads> <milliseconds>, on two ranks");
  struct work all = {.buffers = strtoull(argv[1], NULL, 10),
                     .bytes = strtoull(argv[2], NULL, 10),
                     .threads = strtoull(argv[3], NULL, 10),
                     .seconds = strtod(argv[4], NULL) / 1e3};
  if (all.threads < 1 || all.threads > most_threads || all.buffers < all.threads || all.bytes < 1)
    fail("1 to 16 threads, with a buffer each");
  if (all.threads > 1 && provided < MPI_THREAD_MULTIPLE) fail("this MPI has no MPI_THREAD_MULTIPLE");
  /* Not MPI_Win_allocate: ranks of one host would share that memory, and copy. */
  void *const exposed = malloc(all.bytes);
  for (size_t i = 0; i < all.threads; ++i)
    MPI_Win_create(exposed, (MPI_Aint)all.bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &all.windows[i]);
  if (rank == 0) put_from_all(&all);
  sleep_until_all_are_here();
  for (size_t i = 0; i < all.threads; ++i) MPI_Win_free(&all.windows[i]);
  free(exposed);
  MPI_Finalize();
  return 0;
}
