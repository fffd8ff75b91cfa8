/* SPDX-License-Identifier: BSD-3-Clause */
#include "cuda/contexts.h"

#include "common/report.h"
#include "cuda/pointers.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* A handle does not show the memory that it names. Each gets a place of its own, by a hash: where two meet, the cache
 * compares all bytes. */
enum { place_bytes = 4096 };

static struct context_cache *caches;
static size_t passed_through;                             /* atomic */
static size_t unconfirmed;                                /* atomic */
static size_t closes;                                     /* atomic */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of the list; not held while the driver opens or closes */
static __thread int calls;                                /* of this thread, by a cache, that are in the driver */

static void lock(void) { pthread_mutex_lock(&mutex); }
static void unlock(void) { pthread_mutex_unlock(&mutex); }

void count_passed_through(void) { __atomic_fetch_add(&passed_through, 1, __ATOMIC_RELAXED); }
size_t closes_so_far(void) { return __atomic_load_n(&closes, __ATOMIC_ACQUIRE); }
int is_called_by_cache(void) { return calls != 0; }

static uint64_t place_of(const ipc_handle *handle) {
  uint64_t hash = 0;
  for (size_t i = 0; i < sizeof handle->words / sizeof handle->words[0]; ++i) {
    hash = (hash ^ handle->words[i]) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 32;
  }
  return (hash >> 1 | 1u << 20) / place_bytes * place_bytes; /* neither 0 nor at the end */
}

/* ---- The importer ---- */

static int refused(cuda_result result, const char *message, pinfold_error *failure) {
  failure->native_kind = PINFOLD_NATIVE_CUDA;
  failure->native = result;
  failure->message = message;
  return result == cuda_out_of_memory ? PINFOLD_E_OUT_OF_RESOURCES : PINFOLD_E_DRIVER_ERROR;
}

static int check_handle(void *self, const void *handle, uint64_t *base, uint64_t *bytes) {
  (void)self;
  *base = place_of(handle);
  *bytes = place_bytes;
  return PINFOLD_OK;
}

static uint64_t bytes_around(device_pointer at) {
  device_pointer base = 0;
  size_t bytes = 0;
  if (driver.mem_get_address_range(&base, &bytes, at) != cuda_success || bytes < place_bytes) return place_bytes;
  return bytes;
}

static int open_handle(void *self, const pinfold_open_request *what, pinfold_imported *made, pinfold_error *failure) {
  const struct context_cache *cache = self;
  device_pointer at = 0;
  ++calls;
  const cuda_result result = cache->open(&at, *(const ipc_handle *)what->handle, cuda_lazy_peer_access);
  --calls;
  if (result != cuda_success) return refused(result, "the driver refuses to open the handle", failure);
  __atomic_fetch_add(&unconfirmed, 1, __ATOMIC_RELAXED);
  made->base = place_of(what->handle);
  made->bytes = place_bytes;
  made->budget_bytes = bytes_around(at);
  made->data = (void *)(uintptr_t)at;
  made->registration.words[0] = at;
  return PINFOLD_OK;
}

/* Returns the id of the context; 0: there is none, or the driver fails. */
static unsigned long long id_of(cuda_context context) {
  unsigned long long id = 0;
  return driver.ctx_get_id(context, &id) == cuda_success ? id : 0;
}

static cuda_result close_in_current(device_pointer at) {
  ++calls;
  const cuda_result result = driver.close(at);
  --calls;
  return result;
}

/* Returns whether the context is still the cache's; `result` is why not, or why that is not known. */
static int is_there(const struct context_cache *cache, cuda_result *result) {
  unsigned long long id = 0;
  *result = driver.ctx_get_id(cache->context, &id);
  if (*result == cuda_success && id != cache->id) *result = cuda_context_is_destroyed;
  return *result == cuda_success;
}

static cuda_result close_in_context(const struct context_cache *cache, device_pointer at) {
  cuda_context current = NULL;
  cuda_result gone;
  if (!is_there(cache, &gone)) return gone;
  if (driver.ctx_get_current(&current) == cuda_success && current == cache->context) return close_in_current(at);
  const cuda_result pushed = driver.ctx_push_current(cache->context);
  if (pushed != cuda_success) return pushed;
  const cuda_result result = close_in_current(at);
  driver.ctx_pop_current(&current);
  return result;
}

/* The program did not ask for the close now: it must not end a graph capture of another thread. */
static cuda_result close_in(const struct context_cache *cache, device_pointer at) {
  int mode = cuda_capture_relaxed;
  if (driver.exchange_capture_mode != NULL) driver.exchange_capture_mode(&mode);
  const cuda_result result = close_in_context(cache, at);
  if (driver.exchange_capture_mode != NULL) driver.exchange_capture_mode(&mode);
  return result;
}

static int ended_with_its_context(cuda_result result) {
  return result == cuda_context_is_destroyed || result == cuda_invalid_context || result == cuda_deinitialized;
}

/* A context takes its mappings with it, and the driver all that are left. */
static int close_mapping(void *self, const pinfold_registration *made, pinfold_error *failure) {
  const cuda_result result = close_in(self, made->words[0]);
  if (result != cuda_success && !ended_with_its_context(result))
    return refused(result, "the driver refuses to close the memory", failure);
  __atomic_fetch_add(&closes, 1, __ATOMIC_RELEASE);
  return PINFOLD_OK;
}

/* ---- Contexts ---- */

/* Memory that a peer freed stays allocated while it is mapped here: by default not much, and not for long. */
static void read_options(pinfold_options *options) {
  default_options(options, "cuda");
  options->max_count = 256;
  options->max_bytes = (size_t)4 << 30;
  options->idle_timeout_ms = 10000;
  apply_environment(options, "cuda");
}

static struct context_cache *make_cache(cuda_context context, unsigned long long id, open_function open) {
  static const pinfold_importer importer = {.size = sizeof importer,
                                            .name = "cuda",
                                            .handle_bytes = sizeof(ipc_handle),
                                            .allows_duplicates = 1,
                                            .check = check_handle,
                                            .open = open_handle,
                                            .close = close_mapping};
  struct context_cache *made = calloc(1, sizeof *made);
  if (made == NULL) return NULL;
  *made = (struct context_cache){.context = context, .id = id, .open = open};
  read_options(&made->options);
  snprintf(made->options.name, sizeof made->options.name, "context %llu%s", id, open == driver.open ? " (v1)" : "");
  if (pinfold_create_import(&importer, made, &made->options, &made->cache) == PINFOLD_OK) {
    made->next = caches;
    caches = made;
    return made;
  }
  report("cuda", "%s: %s, so handles pass through", made->options.name, pinfold_last_error()->message);
  free(made);
  return NULL;
}

static struct context_cache *find_or_make(cuda_context context, unsigned long long id, open_function open) {
  lock();
  struct context_cache *found = caches;
  while (found != NULL && (found->id != id || found->open != open)) found = found->next;
  if (found == NULL) found = make_cache(context, id, open);
  unlock();
  return found;
}

/* Returns a cache of an earlier context at the same place, once. */
static struct context_cache *take_ended(cuda_context context, unsigned long long id) {
  lock();
  struct context_cache *found = caches;
  while (found != NULL && (found->context != context || found->id == id || found->ended)) found = found->next;
  if (found != NULL) __atomic_store_n(&found->ended, 1, __ATOMIC_RELAXED);
  unlock();
  return found;
}

/* The driver has closed what is in there. */
static void empty(const struct context_cache *ended) {
  for (const void *one = take_pointer_of(ended); one != NULL; one = take_pointer_of(ended))
    pinfold_release_registration(one);
  pinfold_flush(ended->cache);
}

struct context_cache *cache_of_current(open_function open) {
  cuda_context current = NULL;
  if (driver.ctx_get_current(&current) != cuda_success || current == NULL) return NULL;
  const unsigned long long id = id_of(current);
  if (id == 0) return NULL;
  for (const struct context_cache *one = take_ended(current, id); one != NULL; one = take_ended(current, id))
    empty(one);
  return find_or_make(current, id, open);
}

pinfold_lease open_in(const struct context_cache *cache, const ipc_handle *handle) {
  return pinfold_import(cache->cache, 0, handle, sizeof *handle, place_of(handle), place_bytes);
}

void close_idle(void) {
  lock();
  const struct context_cache *one = caches;
  unlock();
  for (; one != NULL; one = one->next)
    if (!__atomic_load_n(&one->ended, __ATOMIC_RELAXED)) pinfold_flush(one->cache);
}

/* ---- The process ---- */

const char adapter_client[] = "cuda";
const char *why_no_cache(void) { return "the program loaded no CUDA driver"; }

/* Calls no driver: it may have ended. It closes what is open. */
__attribute__((destructor)) static void report_what_is_left(void) {
  pinfold_options options;
  if (!driver.is_taken_over) return; /* and then a wrong setting is none of this program's business */
  read_options(&options);
  if (!wants_statistics(&options)) return;
  for (const struct context_cache *one = caches; one != NULL; one = one->next) {
    char line[1500];
    pinfold_describe(one->cache, line, sizeof line);
    report("cuda", "%s: statistics: %s", one->options.name, line);
  }
  report("cuda", "passed_through=%zu unconfirmed=%zu", passed_through, unconfirmed);
}

/* The driver does not survive fork(2), nor do the caches. */
static void start_child(void) {
  caches = NULL;
  passed_through = 0;
  unconfirmed = 0;
  unlock();
}

__attribute__((constructor)) static void survive_forks(void) { pthread_atfork(lock, unlock, start_child); }
