/* SPDX-License-Identifier: BSD-3-Clause */
/* Facades are in one reserved range of addresses, which tells them from the driver's regions. */
#include "verbs/facade.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

union slot {
  struct facade facade;
  union slot *next;
};

static const size_t reserved_bytes = (size_t)1 << 30;
static const size_t step_bytes = (size_t)1 << 20;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char *begin;       /* of the range; null: not reserved yet. Atomic */
static size_t usable;     /* bytes of it that may be written */
static size_t handed_out; /* bytes of it that are, or were, in use */
static union slot *unused;

static void lock(void) { pthread_mutex_lock(&mutex); }
static void unlock(void) { pthread_mutex_unlock(&mutex); }

static int reserve(void) {
  if (begin != NULL) return 1;
  void *range = mmap(NULL, reserved_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return 0;
  __atomic_store_n(&begin, range, __ATOMIC_RELEASE);
  return 1;
}

static int has_room(void) {
  if (handed_out + sizeof(union slot) <= usable) return 1;
  if (usable == reserved_bytes || mprotect(begin + usable, step_bytes, PROT_READ | PROT_WRITE) != 0) return 0;
  usable += step_bytes;
  return 1;
}

static union slot *take(void) {
  union slot *slot = unused;
  if (slot != NULL) {
    unused = slot->next;
  } else if (reserve() && has_room()) {
    slot = (union slot *)(void *)(begin + handed_out);
    handed_out += sizeof *slot;
  }
  return slot;
}

struct facade *new_facade(void) {
  lock();
  union slot *slot = take();
  unlock();
  if (slot == NULL) return NULL;
  memset(slot, 0, sizeof *slot);
  return &slot->facade;
}

void free_facade(struct facade *facade) {
  union slot *slot = (union slot *)(void *)facade;
  lock();
  slot->next = unused;
  unused = slot;
  unlock();
}

struct facade *facade_of(struct ibv_mr *mr) {
  const uintptr_t first = (uintptr_t)__atomic_load_n(&begin, __ATOMIC_ACQUIRE);
  return first != 0 && (uintptr_t)mr - first < reserved_bytes ? (struct facade *)(void *)mr : NULL;
}

__attribute__((constructor)) static void survive_forks(void) { pthread_atfork(lock, unlock, unlock); }
