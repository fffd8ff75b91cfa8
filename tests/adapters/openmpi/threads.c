/* SPDX-License-Identifier: BSD-3-Clause */
/* MPI_THREAD_MULTIPLE: thread i of rank 0 and thread i of rank 1 send messages to each other for some seconds, from
 * buffers that are replaced while other threads transfer, and compare every byte.
 *   threads <threads> <seconds> */
#include "memory.h"
#include "pattern.h"

#include <mpi.h>

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { most_threads = 16, buffers = 6, page = 4096 };

struct worker {
  pthread_t thread;
  unsigned number;
  MPI_Comm peers;
  struct buffer owned[buffers];
  unsigned messages;
  long wrong;
};

static int rank;
static time_t end;

static void send(struct worker *self, struct buffer *one, bool last) {
  fill(one->data, one->bytes, self->messages);
  one->data[0] = last;
  MPI_Send(one->data, (int)one->bytes, MPI_BYTE, 1 - rank, 0, self->peers);
}

static bool receive(struct worker *self, struct buffer *one) {
  MPI_Recv(one->data, (int)one->bytes, MPI_BYTE, 1 - rank, 0, self->peers, MPI_STATUS_IGNORE);
  const bool last = one->data[0] != 0;
  one->data[0] = byte_at(self->messages, 0);
  self->wrong += wrong_bytes(one->data, one->bytes, self->messages);
  return last;
}

/* Rank 0 decides which round is the last. Each buffer serves three rounds, then three more with other pages, once at
 * least, however busy the machine is. */
static void *work(void *of_thread) {
  struct worker *self = of_thread;
  for (bool last = false; !last;) {
    struct buffer *one = &self->owned[self->messages / 6 % buffers];
    if (self->messages % 3 == 0) renew(one, self->messages / 3);
    if (rank == 0) {
      last = self->messages + 1 >= 6 * buffers && time(NULL) >= end;
      send(self, one, last);
      receive(self, one);
    } else {
      last = receive(self, one);
      send(self, one, last);
    }
    ++self->messages;
  }
  return NULL;
}

static void prepare(struct worker *self, unsigned number) {
  self->number = number;
  MPI_Comm_dup(MPI_COMM_WORLD, &self->peers);
  for (unsigned i = 0; i < buffers; ++i)
    self->owned[i] = (struct buffer){.of_malloc = i % 2 == 1, .bytes = (16 + 24 * (size_t)i) * page};
}

int main(int argc, char **argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  if (argc < 3 || provided != MPI_THREAD_MULTIPLE) return 2;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const unsigned threads = (unsigned)atoi(argv[1]);
  if (threads < 1 || threads > most_threads) return 2;
  end = time(NULL) + atoi(argv[2]);
  static struct worker workers[most_threads];
  for (unsigned i = 0; i < threads; ++i) prepare(&workers[i], i);
  for (unsigned i = 0; i < threads; ++i)
    if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) fail_at("pthread_create");
  unsigned messages = 0;
  long wrong = 0;
  for (unsigned i = 0; i < threads; ++i) {
    pthread_join(workers[i].thread, NULL);
    messages += 2 * workers[i].messages;
    wrong += workers[i].wrong;
  }
  printf("rank %d: %u messages on %u threads, %ld wrong bytes\n", rank, messages, threads, wrong);
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return wrong == 0 && messages > 0 ? 0 : 1;
}
