/* SPDX-License-Identifier: BSD-3-Clause */
/* Buffers that are freed and allocated again, by the kernel's calls or by malloc, often at the same address. */
#ifndef PINFOLD_TESTS_OPENMPI_MEMORY_H
#define PINFOLD_TESTS_OPENMPI_MEMORY_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

struct buffer {
  bool of_malloc;
  size_t bytes;
  unsigned char *data; /* null before the first renew */
};

static inline void fail_at(const char *what) {
  perror(what);
  exit(1);
}

static inline void unmap(struct buffer *one) {
  if (one->data == NULL) return;
  if (one->of_malloc)
    free(one->data);
  else if (munmap(one->data, one->bytes) != 0)
    fail_at("munmap");
}

/* Gives the buffer other pages; those of mmap stay at their address, by turns with munmap and without. */
static inline void renew(struct buffer *one, unsigned turn) {
  if (one->of_malloc || turn % 2 == 0) unmap(one);
  if (one->of_malloc) {
    one->data = malloc(one->bytes);
    if (one->data == NULL) fail_at("malloc");
    return;
  }
  const int fixed = one->data == NULL ? 0 : MAP_FIXED;
  one->data = mmap(one->data, one->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);
  if (one->data == MAP_FAILED) fail_at("mmap");
}

#endif
