/* SPDX-License-Identifier: BSD-3-Clause */
/* Calls every function of the headers that libpinfold implements, as a program of that release did: constants, sizes
   and symbol versions are compiled in. A binary of each release is kept in recorded/, and has to run with the libraries
   of today. */
#include <pinfold/background.h>
#include <pinfold/cache_set.h>
#include <pinfold/node_budget.h>
#include <pinfold/pinfold.h>
#include <pinfold/release.h>
#include <pinfold/release_carried.h>
#include <pinfold/remote_key.h>
#include <pinfold/segments.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPECT(condition)                                                                \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      fprintf(stderr, "every_function.c:%d: %s; last error: %s\n", __LINE__, #condition, \
              pinfold_last_error()->message);                                            \
      exit(EXIT_FAILURE);                                                                \
    }                                                                                    \
  } while (0)

enum { page = 4096, pages = 64 };

typedef struct device {
  int opens, closes, groups, finished, events;
  void *argument;
} device;

static int open_local(void *self, const pinfold_open_request *what, pinfold_registration *made,
                      pinfold_error *failure) {
  device *of = self;
  EXPECT(what->size >= sizeof *what && what->bytes % page == 0);
  if (what->bytes > 32 * page) {
    failure->native_kind = PINFOLD_NATIVE_POSIX;
    failure->native = 28;
    failure->message = "the device is full";
    return PINFOLD_E_DRIVER_ERROR;
  }
  ++of->opens;
  of->argument = what->argument;
  made->words[3] = (uintptr_t)what->address;
  return PINFOLD_OK;
}
static int close_local(void *self, const pinfold_registration *made, pinfold_error *failure) {
  (void)failure;
  EXPECT(made->words[3] != 0);
  ++((device *)self)->closes;
  return PINFOLD_OK;
}
static void open_many(void *self, const pinfold_open_request *what, size_t count, pinfold_registration *made,
                      int *codes, pinfold_error *failures) {
  size_t i;
  ++((device *)self)->groups;
  for (i = 0; i < count; ++i) codes[i] = open_local(self, &what[i], &made[i], &failures[i]);
}
static void finished(void *self) { ++((device *)self)->finished; }
static void sink(void *self, const pinfold_event *event) {
  EXPECT(event->size >= sizeof *event && strcmp(pinfold_event_name(event->kind), "unknown") != 0);
  ++((device *)self)->events;
}
static int count_entry(void *self, const pinfold_entry *entry) {
  EXPECT(entry->size >= sizeof *entry && entry->bytes > 0 && strcmp(entry->state, "live") == 0);
  ++*(int *)self;
  return 0;
}

static void library_and_errors(void) {
  char line[200];
  const pinfold_error made = {PINFOLD_E_DRIVER_ERROR, PINFOLD_NATIVE_POSIX, 12, "a sentence"};
  EXPECT(pinfold_version() >= PINFOLD_API_VERSION);
  EXPECT(strcmp(pinfold_error_name(PINFOLD_OK), "ok") == 0);
  EXPECT(strcmp(pinfold_error_name(PINFOLD_E_CLOSED), "closed") == 0);
  EXPECT(strcmp(pinfold_error_name(PINFOLD_E_STALE_HANDLE), "stale_handle") == 0);
  EXPECT(pinfold_describe_error(&made, line, sizeof line) == strlen(line) && strstr(line, "a sentence") != NULL);
  EXPECT(strcmp(pinfold_event_name(PINFOLD_EVENT_MONITOR_DEGRADED), "unknown") != 0);
  EXPECT(pinfold_dump_on_signal(SIGTERM, "/nowhere", 0) == PINFOLD_OK);
  EXPECT(pinfold_dump_on_signal(SIGTERM, NULL, PINFOLD_DUMP_CHAIN) == PINFOLD_OK);
  EXPECT(pinfold_dump_on_signal(0, NULL, 0) == PINFOLD_E_INVALID_ARGUMENT);
}

static pinfold_options options_of(device *of) {
  pinfold_options options;
  EXPECT(pinfold_options_init(&options, sizeof options) == PINFOLD_OK);
  EXPECT(pinfold_options_from_environment(&options) == PINFOLD_OK);
  EXPECT(pinfold_options_from_text(&options, "PINFOLD_MAX_COUNT=40\n") == PINFOLD_OK && options.max_count == 40);
  EXPECT(options.max_bytes == PINFOLD_UNLIMITED);
  options.monitor = PINFOLD_MONITOR_MANUAL;
  options.flags |= PINFOLD_STATISTICS_AT_EXIT;
  options.drain_timeout_ms = 10;
  options.sink = sink;
  options.sink_self = of;
  return options;
}

static void batches_and_chunks(pinfold_cache *cache, device *of, char *memory) {
  pinfold_range ranges[2], where;
  pinfold_lease leases[2];
  pinfold_batch_options batch = {0};
  pinfold_chunk_options pieces = {0};
  pinfold_chunks *chunks = NULL;
  int i, count = 0;
  for (i = 0; i < 2; ++i) ranges[i].base = (uintptr_t)memory + (unsigned)i * 4 * page, ranges[i].bytes = page;
  batch.size = sizeof batch;
  batch.argument = of;
  EXPECT(pinfold_acquire_batch(cache, ranges, 2, PINFOLD_LOCAL_WRITE, &batch, leases) == PINFOLD_OK);
  EXPECT(of->groups > 0 && of->argument == of && leases[1].data == memory + 4 * page);
  EXPECT(pinfold_release_batch(leases, 2) == PINFOLD_OK);
  pieces.size = sizeof pieces;
  pieces.chunk_bytes = 2 * page;
  EXPECT(pinfold_acquire_chunks(cache, memory, 8 * page, PINFOLD_LOCAL_READ, &pieces, &chunks) == PINFOLD_OK);
  while (pinfold_next_chunk(chunks, &where, &leases[0]) == PINFOLD_OK) {
    ++count;
    EXPECT(where.bytes == 2 * page && pinfold_release(leases[0]) == PINFOLD_OK);
  }
  EXPECT(count == 4 && pinfold_last_error()->code == PINFOLD_E_CLOSED && pinfold_end_chunks(chunks) == PINFOLD_OK);
}

/* Returns a lease that is still out. */
static pinfold_lease leases_of(pinfold_cache *cache, device *of, char *memory) {
  uint64_t base, bytes;
  const void *detached;
  pinfold_lease one, other;
  pinfold_acquire_options how = {0};
  one = pinfold_acquire(cache, memory + 100, 100, PINFOLD_LOCAL_READ | PINFOLD_LOCAL_WRITE);
  EXPECT(one.pin != 0 && one.data == memory + 100 && of->opens == 1);
  EXPECT(((const pinfold_registration *)pinfold_registration_of(one))->words[3] == (uintptr_t)memory);
  EXPECT(pinfold_covered(one, &base, &bytes) == PINFOLD_OK && base == (uintptr_t)memory && bytes == page);
  other = pinfold_find(cache, memory, 10, PINFOLD_LOCAL_READ);
  EXPECT(other.pin != 0 && pinfold_release(other) == PINFOLD_OK);
  other = pinfold_share(one);
  detached = pinfold_detach(other);
  EXPECT(detached == pinfold_registration_of(one) && pinfold_release_registration(detached) == PINFOLD_OK);
  pinfold_announce_gone(memory, page);
  EXPECT(pinfold_close_idle_in_process("cuda_host", memory, page) == 0);
  EXPECT(pinfold_find(cache, memory, 10, PINFOLD_LOCAL_READ).pin == 0);
  EXPECT(pinfold_is_stale(one) == 1 && pinfold_is_closed(one) == 0 && pinfold_release(one) == PINFOLD_OK);
  how.size = sizeof how;
  how.flags = PINFOLD_PERSISTENT;
  how.argument = memory;
  one = pinfold_acquire_with(cache, memory, page, PINFOLD_LOCAL_READ, &how);
  EXPECT(one.pin != 0 && of->argument == memory && pinfold_release(one) == PINFOLD_OK);
  EXPECT(pinfold_flush(cache) == PINFOLD_OK);
  one = pinfold_find(cache, memory, 1, PINFOLD_LOCAL_READ);
  EXPECT(one.pin != 0 && pinfold_quiesce(cache) == PINFOLD_E_IN_USE_CONFLICT);
  return one;
}

static void count_progress(void *self, uint64_t done, uint64_t total) {
  EXPECT(done <= total);
  ++*(int *)self;
}

static void large_leases(pinfold_cache *cache, char *memory) {
  int calls = 0;
  pinfold_large_options how = {0};
  pinfold_large *lease = NULL;
  pinfold_range where;
  pinfold_lease piece;
  pinfold_part parts[2];
  size_t count = 0;
  how.size = sizeof how;
  how.piece_bytes = 2 * page;
  how.workers = 1;
  how.progress = count_progress;
  how.self = &calls;
  EXPECT(pinfold_acquire_large(cache, memory, 4 * page, PINFOLD_LOCAL_READ, &how, &lease) == PINFOLD_OK);
  EXPECT(pinfold_large_pieces(lease) == 2 && pinfold_large_is_stale(lease) == 0);
  EXPECT(pinfold_large_piece(lease, 0, &where, &piece) == PINFOLD_OK && where.bytes == 2 * page);
  EXPECT(pinfold_large_at(lease, memory + 3 * page, &where, &piece) == PINFOLD_OK && piece.data == memory + 2 * page);
  EXPECT(pinfold_large_list(lease, memory, 4 * page, parts, 2, &count) == PINFOLD_OK && count == 2);
  EXPECT(parts[1].registration == pinfold_registration_of(piece));
  EXPECT(pinfold_large_release(lease) == PINFOLD_OK);
}

static void background(pinfold_cache *cache, char *memory) {
  pinfold_background_options how = {0};
  pinfold_background_progress now = {0};
  pinfold_background *ticket = NULL;
  pinfold_large *lease = NULL;
  pinfold_range whole, stale;
  size_t count = 1;
  whole.base = (uintptr_t)memory;
  whole.bytes = 4 * page;
  how.size = sizeof how;
  how.piece_bytes = 2 * page;
  how.workers = 1;
  how.order = PINFOLD_ORDER_LARGEST_FIRST;
  now.size = sizeof now;
  EXPECT(pinfold_register_in_background(cache, &whole, 1, PINFOLD_LOCAL_READ, &how, &ticket) == PINFOLD_OK);
  EXPECT(pinfold_background_wait_until_ready(ticket, whole.base + 1, 10000) == PINFOLD_OK);
  EXPECT(pinfold_background_wait(ticket, PINFOLD_NO_TIMEOUT) == PINFOLD_OK);
  EXPECT(pinfold_background_ready_end(ticket) == whole.base + whole.bytes);
  EXPECT(pinfold_background_is_ready(ticket, memory, 4 * page) == 1);
  EXPECT(pinfold_background_progress_of(ticket, &now) == PINFOLD_OK && now.bytes_done == 4 * page);
  EXPECT(pinfold_background_failure(ticket, NULL, NULL) == 0);
  EXPECT(pinfold_background_stale(ticket, &stale, 1, &count) == PINFOLD_OK && count == 0);
  EXPECT(pinfold_background_acquire(ticket, memory, 1, &lease) == PINFOLD_OK);
  EXPECT(pinfold_large_release(lease) == PINFOLD_OK && pinfold_background_renew(ticket) == PINFOLD_OK);
  EXPECT(pinfold_background_cancel(ticket, PINFOLD_CANCEL_KEEP) == PINFOLD_OK);
  EXPECT(pinfold_background_take(ticket, &lease) == PINFOLD_OK && pinfold_large_release(lease) == PINFOLD_OK);
  EXPECT(pinfold_background_end(ticket) == PINFOLD_OK);
}

static void restoration_of(pinfold_cache *cache) {
  pinfold_restoration *restoration = NULL;
  pinfold_restore_progress now;
  memset(&now, 0, sizeof now);
  now.size = sizeof now;
  EXPECT(pinfold_quiesce(cache) == PINFOLD_OK);
  EXPECT(pinfold_restore(cache, 1, &restoration) == PINFOLD_OK);
  EXPECT(pinfold_restoration_wait(restoration, PINFOLD_NO_TIMEOUT) == PINFOLD_OK);
  EXPECT(pinfold_restoration_progress(restoration, &now) == PINFOLD_OK);
  EXPECT(now.total == now.restored && now.failed == 0);
  EXPECT(pinfold_end_restoration(restoration) == PINFOLD_OK);
}

static void failures_of(pinfold_cache *cache, char *memory) {
  EXPECT(pinfold_acquire(cache, memory, 0, PINFOLD_LOCAL_READ).pin == 0);
  EXPECT(pinfold_last_error()->code == PINFOLD_E_INVALID_RANGE);
  EXPECT(pinfold_acquire(cache, memory, 1, 1U << 30).pin == 0);
  EXPECT(pinfold_last_error()->code == PINFOLD_E_INVALID_ARGUMENT);
  EXPECT(pinfold_acquire(cache, memory, 33 * page, PINFOLD_LOCAL_READ).pin == 0);
  EXPECT(pinfold_last_error()->code == PINFOLD_E_DRIVER_ERROR && pinfold_last_error()->native == 28);
  EXPECT(pinfold_last_error()->native_kind == PINFOLD_NATIVE_POSIX);
  EXPECT(strcmp(pinfold_last_error()->message, "the device is full") == 0);
}

static void local_cache(void) {
  device of = {0, 0, 0, 0, 0, NULL};
  char *const buffer = malloc((pages + 1) * page), *memory = buffer;
  char line[1000];
  int entries = 0;
  const pinfold_options options = options_of(&of);
  pinfold_registrar registrar = {0};
  pinfold_statistics now = {0};
  pinfold_cache *cache = NULL;
  pinfold_lease last;
  memory += page - (uintptr_t)memory % page;
  registrar.size = sizeof registrar;
  registrar.name = "device";
  registrar.open = open_local;
  registrar.close = close_local;
  registrar.open_many = open_many;
  registrar.finished = finished;
  EXPECT(pinfold_create(&registrar, &of, &options, &cache) == PINFOLD_OK);
  EXPECT(pinfold_monitors(cache, line, sizeof line) == strlen(line) && strcmp(line, "manual") == 0);
  last = leases_of(cache, &of, memory);
  failures_of(cache, memory);
  EXPECT(pinfold_unpersist(cache, memory, page) == PINFOLD_OK);
  batches_and_chunks(cache, &of, memory + 8 * page);
  large_leases(cache, memory + 8 * page);
  background(cache, memory + 8 * page);
  now.size = sizeof now;
  EXPECT(pinfold_statistics_of(cache, &now) == PINFOLD_OK && now.opens == (uint64_t)of.opens && now.leases_now == 1);
  EXPECT(pinfold_describe(cache, line, sizeof line) == strlen(line));
  EXPECT(pinfold_open_metrics(line, sizeof line) == 0 && pinfold_last_error()->native == 2); /* none publishes */
  EXPECT(pinfold_dump(cache, count_entry, &entries) == PINFOLD_OK && (uint64_t)entries == now.entries_now);
  EXPECT(pinfold_invalidate(cache, memory + 8 * page, page) == PINFOLD_OK && pinfold_progress(cache) == PINFOLD_OK);
  EXPECT(pinfold_evict(cache, 1) == 1);
  EXPECT(pinfold_destroy(cache) == PINFOLD_OK); /* although a lease is out */
  EXPECT(pinfold_flush(cache) == PINFOLD_E_CLOSED);
  EXPECT(pinfold_is_closed(last) == 1 && pinfold_release(last) == PINFOLD_OK);
  EXPECT(of.finished == 1 && of.opens == of.closes && of.events > 0);
  free(buffer);
}

static void built_in_caches(void) {
  pinfold_cache *cache = NULL;
  static char memory[page];
  pinfold_lease lease;
  EXPECT(pinfold_create_mlock(NULL, &cache) == PINFOLD_OK);
  lease = pinfold_acquire(cache, memory, sizeof memory, PINFOLD_LOCAL_READ);
  EXPECT(lease.pin != 0 && pinfold_release(lease) == PINFOLD_OK);
  restoration_of(cache);
  EXPECT(pinfold_destroy(cache) == PINFOLD_OK);
  EXPECT(pinfold_create_io_uring(NULL, 0, NULL, &cache) == PINFOLD_E_INVALID_ARGUMENT);
  EXPECT(pinfold_create_cuda_host(-1, NULL, &cache) != PINFOLD_OK && cache == NULL);
  EXPECT(pinfold_create_cuda_ipc(-1, NULL, &cache) != PINFOLD_OK && cache == NULL);
}

static int check_handle(void *self, const void *handle, uint64_t *base, uint64_t *bytes) {
  (void)self, (void)handle;
  *base = 1 << 20, *bytes = page;
  return PINFOLD_OK;
}
static int open_handle(void *self, const pinfold_open_request *what, pinfold_imported *made, pinfold_error *failure) {
  static char memory[page];
  (void)failure;
  EXPECT(what->peer == 7 && memcmp(what->handle, "12345678", 8) == 0);
  ++((device *)self)->opens;
  made->base = 1 << 20;
  made->bytes = page;
  made->data = memory;
  return PINFOLD_OK;
}
static int close_handle(void *self, const pinfold_registration *made, pinfold_error *failure) {
  (void)made, (void)failure;
  ++((device *)self)->closes;
  return PINFOLD_OK;
}

static void import_cache(void) {
  device of = {0, 0, 0, 0, 0, NULL};
  pinfold_importer importer = {0};
  pinfold_cache *cache = NULL;
  pinfold_lease lease;
  importer.size = sizeof importer;
  importer.name = "peer";
  importer.handle_bytes = 8;
  importer.check = check_handle;
  importer.open = open_handle;
  importer.close = close_handle;
  EXPECT(pinfold_create_import(&importer, &of, NULL, &cache) == PINFOLD_OK && pinfold_handle_bytes(cache) == 8);
  lease = pinfold_import(cache, 7, "12345678", 8, 1 << 20, page);
  EXPECT(lease.pin != 0 && pinfold_release(lease) == PINFOLD_OK);
  lease = pinfold_find_import(cache, 7, "12345678", 8, (1 << 20) + 8, 8);
  EXPECT(lease.pin != 0 && pinfold_release(lease) == PINFOLD_OK && of.opens == 1);
  EXPECT(pinfold_invalidate_peer(cache, 7, 1 << 20, page) == PINFOLD_OK);
  lease = pinfold_import_with(cache, 7, "12345678", 8, 1 << 20, page, NULL);
  EXPECT(lease.pin != 0 && pinfold_release(lease) == PINFOLD_OK && of.opens == 2);
  EXPECT(pinfold_drop_peer(cache, 7) == PINFOLD_OK && of.closes == 2 && pinfold_destroy(cache) == PINFOLD_OK);
}

static void segments(void) {
  char handle[PINFOLD_MEMFD_HANDLE_BYTES];
  pinfold_memfd_exporter *exporter = NULL;
  pinfold_memfd_segments *memory = NULL;
  pinfold_cache *cache = NULL;
  pinfold_window window;
  pinfold_range where[2];
  pinfold_lease lease, both[2];
  char handles[2][PINFOLD_MEMFD_HANDLE_BYTES];
  size_t count = 0;
  void *at = NULL;
  EXPECT(pinfold_memfd_exporter_create(0, &exporter) == PINFOLD_OK);
  EXPECT(pinfold_memfd_reserve(exporter, 4 * page, &memory) == PINFOLD_OK);
  EXPECT(pinfold_memfd_segments_window(memory, &window) == PINFOLD_OK && window.bytes == 4 * page);
  EXPECT(pinfold_memfd_segment_add(memory, page, page, handle, sizeof handle) == PINFOLD_OK);
  strcpy((char *)pinfold_memfd_segments_data(memory) + page, "grown");
  EXPECT(pinfold_create_memfd(0, NULL, &cache) == PINFOLD_OK);
  EXPECT(pinfold_can_open(cache, handle, sizeof handle) == PINFOLD_OK);
  EXPECT(pinfold_add_window(cache, &window, &at) == PINFOLD_OK);
  lease = pinfold_import(cache, 1, handle, sizeof handle, window.base + page, 6);
  EXPECT(lease.pin != 0 && lease.data == (char *)at + page && strcmp(lease.data, "grown") == 0);
  EXPECT(pinfold_release(lease) == PINFOLD_OK);
  EXPECT(pinfold_memfd_segment_add(memory, 2 * page, page, handle, sizeof handle) == PINFOLD_OK);
  EXPECT(pinfold_memfd_segments_handles(memory, page, 2 * page, handles, sizeof handle, 2, &count) == PINFOLD_OK);
  EXPECT(count == 2 && memcmp(handles[1], handle, sizeof handle) == 0);
  EXPECT(pinfold_acquire_segments(cache, 1, handles, sizeof handle, 2, window.base + page, 2 * page, both, where,
                                  &count) == PINFOLD_OK);
  EXPECT(count == 2 && where[1].base == window.base + 2 * page && both[1].data == (char *)both[0].data + page);
  EXPECT(pinfold_release_batch(both, 2) == PINFOLD_OK);
  EXPECT(pinfold_remove_window(cache, &window) == PINFOLD_E_IN_USE_CONFLICT && pinfold_flush(cache) == PINFOLD_OK);
  EXPECT(pinfold_remove_window(cache, &window) == PINFOLD_OK && pinfold_destroy(cache) == PINFOLD_OK);
  EXPECT(pinfold_memfd_segment_remove(memory, page, page) == PINFOLD_OK);
  pinfold_memfd_segments_free(memory);
  pinfold_memfd_exporter_destroy(exporter);
}

static void exporters(void) {
  char handle[PINFOLD_MEMFD_HANDLE_BYTES];
  pinfold_memfd_exporter *exporter = NULL;
  pinfold_memfd_buffer *buffer = NULL;
  pinfold_cuda_exporter *gpu = NULL;
  pinfold_cache *cache = NULL;
  size_t count = 0;
  pinfold_lease lease;
  EXPECT(pinfold_memfd_exporter_create(0, &exporter) == PINFOLD_OK);
  EXPECT(pinfold_memfd_allocate(exporter, 100, &buffer) == PINFOLD_OK && pinfold_memfd_size(buffer) == page);
  EXPECT(pinfold_memfd_handle(buffer, handle, sizeof handle) == PINFOLD_OK);
  strcpy(pinfold_memfd_data(buffer), "shared");
  EXPECT(pinfold_create_memfd(0, NULL, &cache) == PINFOLD_OK && pinfold_handle_bytes(cache) == sizeof handle);
  lease = pinfold_import(cache, 1, handle, sizeof handle, (uintptr_t)pinfold_memfd_data(buffer), 7);
  EXPECT(lease.pin != 0 && strcmp(lease.data, "shared") == 0 && pinfold_release(lease) == PINFOLD_OK);
  EXPECT(pinfold_destroy(cache) == PINFOLD_OK);
  pinfold_memfd_free(buffer);
  pinfold_memfd_exporter_destroy(exporter);
  if (pinfold_cuda_exporter_create(&gpu) == PINFOLD_OK) {
    EXPECT(pinfold_cuda_share(gpu, 0, 1, handle, PINFOLD_CUDA_HANDLE_BYTES) != PINFOLD_OK);
    EXPECT(pinfold_cuda_share_segments(gpu, 0, 1, NULL, PINFOLD_CUDA_HANDLE_BYTES, 0, &count) != PINFOLD_OK);
  }
  pinfold_cuda_exporter_destroy(gpu);
}

static int free_nothing(void *self, pinfold_error *failure) {
  (void)self, (void)failure;
  return PINFOLD_OK;
}

static void retirements(void) {
  char handle[PINFOLD_MEMFD_HANDLE_BYTES];
  pinfold_exporter_options how = {0};
  pinfold_retire_report report = {0};
  pinfold_release_statistics counts = {0};
  pinfold_memfd_exporter *exporter = NULL;
  pinfold_memfd_buffer *buffer = NULL;
  pinfold_cuda_exporter *gpu = NULL;
  pinfold_retirement *ticket = NULL;
  pinfold_cache *cache = NULL;
  pinfold_lease lease;
  size_t count = 7;
  how.size = sizeof how;
  how.release = 1;
  how.limbo_bytes = 1 << 20;
  report.size = sizeof report;
  counts.size = sizeof counts;
  EXPECT(pinfold_memfd_exporter_create_with(&how, &exporter) == PINFOLD_OK);
  EXPECT(pinfold_memfd_allocate(exporter, page, &buffer) == PINFOLD_OK);
  EXPECT(pinfold_memfd_handle(buffer, handle, sizeof handle) == PINFOLD_OK);
  EXPECT(pinfold_create_memfd_releasing(0, NULL, &cache) == PINFOLD_OK);
  lease = pinfold_import(cache, 1, handle, sizeof handle, (uintptr_t)pinfold_memfd_data(buffer), page);
  EXPECT(lease.pin != 0 && pinfold_release(lease) == PINFOLD_OK);
  EXPECT(pinfold_memfd_retire(exporter, &buffer, 5000, &report) == PINFOLD_OK && buffer == NULL);
  EXPECT(report.state == PINFOLD_RETIRE_FREED && report.let_go == 1 && report.failure.code == PINFOLD_OK);
  EXPECT(pinfold_memfd_allocate(exporter, page, &buffer) == PINFOLD_OK);
  EXPECT(pinfold_memfd_begin_retire(exporter, &buffer, 5000, &ticket) == PINFOLD_OK && buffer == NULL);
  EXPECT(pinfold_retirement_wait(ticket, 5000, &report) == PINFOLD_OK && report.state == PINFOLD_RETIRE_FREED);
  EXPECT(pinfold_retirement_holders(ticket, NULL, 0, &count) == PINFOLD_OK && count == 0);
  pinfold_retirement_end(ticket);
  EXPECT(pinfold_memfd_retirements(exporter, &counts) == PINFOLD_OK && counts.freed == 2);
  EXPECT(pinfold_destroy(cache) == PINFOLD_OK);
  pinfold_memfd_exporter_destroy(exporter);
  EXPECT(pinfold_create_cuda_ipc_releasing(-1, NULL, &cache) != PINFOLD_OK && cache == NULL);
  if (pinfold_cuda_exporter_create_with(&how, &gpu) == PINFOLD_OK) {
    EXPECT(pinfold_cuda_begin_retire(gpu, 8, 1, free_nothing, NULL, &ticket) != PINFOLD_OK && ticket == NULL);
    EXPECT(pinfold_cuda_announce_free(8, 1, 1, &count) == PINFOLD_OK && count == 0);
    EXPECT(pinfold_cuda_retirements(gpu, &counts) == PINFOLD_OK && counts.retirements == 0);
  }
  pinfold_cuda_exporter_destroy(gpu);
}

typedef struct carried {
  unsigned char message[PINFOLD_RELEASE_MESSAGE_BYTES];
  uint64_t exporter;
  int sent;
} carried;

static int carry(void *self, uint64_t exporter, const void *message, size_t bytes, pinfold_error *failure) {
  carried *to = self;
  (void)failure;
  EXPECT(bytes == sizeof to->message);
  memcpy(to->message, message, bytes);
  to->exporter = exporter;
  ++to->sent;
  return PINFOLD_OK;
}

static void carried_retirements(void) {
  char handle[PINFOLD_MEMFD_HANDLE_BYTES], message[PINFOLD_RELEASE_MESSAGE_BYTES];
  carried channel = {{0}, 0, 0};
  pinfold_release_id id;
  pinfold_retire_report report = {0};
  pinfold_release_listener_statistics counts = {0};
  pinfold_release_holder holder;
  pinfold_memfd_exporter *exporter = NULL;
  pinfold_memfd_buffer *buffer = NULL;
  pinfold_release_registry *registry = NULL;
  pinfold_release_listener *listener = NULL;
  pinfold_cache *cache = NULL;
  pinfold_lease lease;
  size_t count = 7;
  report.size = sizeof report;
  counts.size = sizeof counts;
  EXPECT(pinfold_memfd_exporter_create(0, &exporter) == PINFOLD_OK);
  EXPECT(pinfold_memfd_allocate(exporter, page, &buffer) == PINFOLD_OK);
  EXPECT(pinfold_memfd_handle(buffer, handle, sizeof handle) == PINFOLD_OK);
  EXPECT(pinfold_release_id_of(handle, sizeof handle, &id) == PINFOLD_OK && id.exporter != 0 && id.serial != 0);
  EXPECT(pinfold_release_registry_create(id.exporter, &registry) == PINFOLD_OK);
  EXPECT(pinfold_release_registry_add(registry, id.serial) == PINFOLD_OK);
  EXPECT(pinfold_release_registry_lend(registry, id.serial, 3, 1) == PINFOLD_OK);
  EXPECT(pinfold_release_registry_lend(registry, id.serial, 4, 0) == PINFOLD_OK);
  EXPECT(pinfold_release_listener_create(carry, &channel, &listener) == PINFOLD_OK);
  EXPECT(pinfold_create_memfd_carried(listener, 0, NULL, &cache) == PINFOLD_OK);
  lease = pinfold_import(cache, 1, handle, sizeof handle, (uintptr_t)pinfold_memfd_data(buffer), page);
  EXPECT(lease.pin != 0);
  EXPECT(pinfold_release_registry_begin_retire(registry, id.serial, 5000) == PINFOLD_OK);
  EXPECT(pinfold_release_registry_next_request(registry, 3, message, sizeof message, &count) == PINFOLD_OK);
  EXPECT(count == sizeof message);
  EXPECT(pinfold_release_registry_take_back(registry, 3, message, sizeof message) == PINFOLD_OK);
  EXPECT(pinfold_release_registry_next_request(registry, 3, message, sizeof message, &count) == PINFOLD_OK);
  EXPECT(count == sizeof message);
  EXPECT(pinfold_release_listener_receive(listener, message, sizeof message) == PINFOLD_OK && channel.sent == 1);
  EXPECT(channel.exporter == id.exporter);
  EXPECT(pinfold_release_registry_receive(registry, 3, channel.message, sizeof channel.message) == PINFOLD_OK);
  EXPECT(pinfold_release_registry_lost(registry, 4) == PINFOLD_OK);
  EXPECT(pinfold_release_registry_died(registry, 4) == PINFOLD_OK);
  EXPECT(pinfold_release_registry_holders(registry, id.serial, &holder, 1, &count) == PINFOLD_OK && count == 1);
  EXPECT(holder.connection == 3 && holder.pid == 1 && holder.answer == PINFOLD_RELEASE_LEASED);
  EXPECT(pinfold_release(lease) == PINFOLD_OK && pinfold_release_listener_progress(listener) == PINFOLD_OK);
  EXPECT(pinfold_release_listener_statistics_of(listener, &counts) == PINFOLD_OK && counts.requests == 1);
  EXPECT(pinfold_release_registry_receive(registry, 3, channel.message, sizeof channel.message) == PINFOLD_OK);
  EXPECT(pinfold_release_registry_wait(registry, id.serial, 5000, &report) == PINFOLD_OK);
  EXPECT(report.state == PINFOLD_RETIRE_FREED && report.let_go == 1 && report.died == 1);
  EXPECT(pinfold_release_registry_forget(registry, id.serial) == PINFOLD_OK);
  EXPECT(pinfold_destroy(cache) == PINFOLD_OK);
  EXPECT(pinfold_create_cuda_ipc_carried(listener, -1, NULL, &cache) != PINFOLD_OK && cache == NULL);
  EXPECT(pinfold_release_listener_destroy(listener) == PINFOLD_OK);
  pinfold_release_registry_destroy(registry);
  pinfold_memfd_free(buffer);
  pinfold_memfd_exporter_destroy(exporter);
}

static void several_caches(void) {
  static char memory[2 * page];
  device of = {0, 0, 0, 0, 0, NULL};
  pinfold_registrar registrar = {0};
  pinfold_options options;
  pinfold_set_options how = {0};
  pinfold_cache *caches[2] = {NULL, NULL};
  pinfold_lease leases[2];
  pinfold_error failures[2];
  const uint32_t distances[2] = {1, 0};
  registrar.size = sizeof registrar;
  registrar.name = "rail";
  registrar.open = open_local;
  registrar.close = close_local;
  EXPECT(pinfold_options_init(&options, sizeof options) == PINFOLD_OK);
  options.monitor = PINFOLD_MONITOR_MANUAL;
  EXPECT(pinfold_create(&registrar, &of, &options, &caches[0]) == PINFOLD_OK);
  EXPECT(pinfold_create(&registrar, &of, &options, &caches[1]) == PINFOLD_OK);
  how.size = sizeof how;
  how.policy = PINFOLD_SET_NEAR_FIRST;
  how.distances = distances;
  EXPECT(pinfold_acquire_set(caches, 2, memory, sizeof memory, PINFOLD_LOCAL_READ, &how, leases, failures) ==
         PINFOLD_OK);
  EXPECT(leases[0].pin == 0 && failures[0].code == PINFOLD_OK && leases[1].pin != 0 && of.opens == 1);
  leases[0] = pinfold_acquire_late(caches, 2, 0, memory, sizeof memory, PINFOLD_LOCAL_READ, leases);
  EXPECT(leases[0].pin != 0 && pinfold_release_batch(leases, 2) == PINFOLD_OK && of.opens == 2);
  EXPECT(pinfold_destroy(caches[0]) == PINFOLD_OK && pinfold_destroy(caches[1]) == PINFOLD_OK);
}

static void remote_keys(void) {
  pinfold_remote_keys *keys = NULL;
  pinfold_remote_key token, read;
  unsigned char wire[PINFOLD_REMOTE_KEY_WIRE_BYTES];
  const uint64_t *words;
  size_t count = 0;
  EXPECT(pinfold_remote_keys_create(8, &keys) == PINFOLD_OK);
  EXPECT(pinfold_remote_key_issue(keys, 1 << 20, page, 77, &token) == PINFOLD_OK && token.generation % 2 == 1);
  EXPECT(pinfold_remote_key_encode(&token, wire, sizeof wire) == PINFOLD_OK);
  EXPECT(pinfold_remote_key_decode(wire, sizeof wire, &read) == PINFOLD_OK && memcmp(&read, &token, sizeof read) == 0);
  EXPECT(pinfold_remote_keys_words(keys, &words, &count) == PINFOLD_OK);
  EXPECT(count == 8 && pinfold_remote_key_is_current(&read, words, count) == 1);
  EXPECT(pinfold_remote_key_withdraw(keys, &read) == PINFOLD_OK);
  EXPECT(pinfold_remote_key_is_current(&read, words, count) == 0);
  pinfold_remote_keys_destroy(keys);
}

static int count_member(void *self, const pinfold_node_budget_member *member) {
  EXPECT(member->name != NULL);
  ++*(int *)self;
  return 0;
}

static void node_budgets(void) {
  static const char name[] = "abi-every-function";
  pinfold_node_budget_options how = {0};
  pinfold_node_budget_state state = {0};
  pinfold_node_budget_limits limits = {0};
  pinfold_node_budget *budget = NULL;
  int members = 0;
  how.size = sizeof how;
  how.max_bytes = 16 * page;
  state.size = sizeof state;
  limits.size = sizeof limits;
  EXPECT(pinfold_node_budget_open(NULL, &how, &budget) == PINFOLD_E_INVALID_ARGUMENT && budget == NULL);
  pinfold_node_budget_remove(name); /* of a run that was killed */
  EXPECT(pinfold_node_budget_open(name, &how, &budget) == PINFOLD_OK);
  EXPECT(pinfold_node_budget_take(budget, page) == PINFOLD_OK && pinfold_node_budget_trim(budget) == PINFOLD_OK);
  EXPECT(pinfold_node_budget_read(budget, &state) == PINFOLD_OK && state.bytes_here == page && state.members == 1);
  EXPECT(pinfold_node_budget_take(budget, 32 * page) == PINFOLD_E_OVER_BUDGET);
  EXPECT(pinfold_node_budget_give(budget, page) == PINFOLD_OK);
  EXPECT(pinfold_node_budget_set_max_bytes(budget, 8 * page) == PINFOLD_OK);
  EXPECT(pinfold_node_budget_members(budget, count_member, &members) == PINFOLD_OK && members == 1);
  EXPECT(pinfold_node_budget_read_limits(budget, &limits) == PINFOLD_OK && limits.account_max == 8 * page);
  pinfold_node_budget_close(budget);
  EXPECT(pinfold_node_budget_remove(name) == PINFOLD_OK);
}

int main(void) {
  library_and_errors();
  local_cache();
  built_in_caches();
  import_cache();
  exporters();
  node_budgets();
  retirements();
  carried_retirements();
  several_caches();
  remote_keys();
  segments();
  printf("every function of libpinfold works\n");
  return EXIT_SUCCESS;
}
