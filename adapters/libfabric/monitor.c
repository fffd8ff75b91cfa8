/* SPDX-License-Identifier: BSD-3-Clause */
/* libfabric subscribes to the memory of each region that it caches, and asks before each hit whether it is still valid.
 * A subscription is a lease of a cache whose registrar does nothing: the cache watches the memory, and the lease turns
 * stale when it goes. */
#include "libfabric/monitor.h"

#include "common/report.h"
#include "libfabric/gone.h"
#include "libfabric/subscriptions.h"

#include <rdma/fi_errno.h>
#include <rdma/fi_ext.h>

static pinfold_cache *cache;
static struct {
  const void *address;
  size_t bytes;
} refused; /* libfabric unsubscribes from what was refused, too */

static int open_nothing(void *self, const pinfold_open_request *what, pinfold_registration *made,
                        pinfold_error *failure) {
  (void)self, (void)what, (void)made, (void)failure;
  return PINFOLD_OK;
}

static int close_nothing(void *self, const pinfold_registration *made, pinfold_error *failure) {
  (void)self, (void)made, (void)failure;
  return PINFOLD_OK;
}

static void learn(void *client, const pinfold_event *event) {
  if (event->kind == PINFOLD_EVENT_INVALIDATED_WHILE_LEASED)
    gone_add(event->base, event->bytes);
  else
    report_event(client, event);
}

static void tell_libfabric(uint64_t base, uint64_t bytes);

static int make_cache(void) {
  static const pinfold_registrar registrar = {
      .size = sizeof registrar, .name = "libfabric_monitor", .open = open_nothing, .close = close_nothing};
  pinfold_options options;
  default_options(&options, "libfabric");
  apply_environment(&options, "libfabric");
  options.sink = learn;
  options.max_bytes = options.max_count = PINFOLD_UNLIMITED; /* libfabric has the limits */
  options.merge = PINFOLD_MERGE_NONE;
  options.flags |= PINFOLD_NO_RETAIN | PINFOLD_REAPER; /* which reports memory that no request asks for */
  return pinfold_create(&registrar, NULL, &options, &cache);
}

static int start(struct fid_mem_monitor *monitor) {
  (void)monitor;
  if (make_cache() != PINFOLD_OK) {
    report("libfabric", "no monitor: %s", pinfold_last_error()->message);
    return -FI_ENOSYS;
  }
  const int failed = gone_start(tell_libfabric);
  if (failed != 0) pinfold_destroy(cache);
  return -failed;
}

static void stop(struct fid_mem_monitor *monitor) {
  (void)monitor;
  gone_stop();
  drop_subscriptions();
  pinfold_destroy(cache);
}

static int is_found(const void *address, size_t bytes) {
  const pinfold_lease lease = pinfold_find(cache, address, bytes, PINFOLD_LOCAL_READ);
  pinfold_release(lease);
  return lease.pin != 0;
}

/* Memory that pinfold cannot watch is registered for one lease only, and not found. */
static int refuse(const void *address, size_t bytes, pinfold_lease lease) {
  pinfold_release(lease);
  refused.address = address;
  refused.bytes = bytes;
  return -FI_EOPNOTSUPP;
}

static int subscribe(struct fid_mem_monitor *monitor, const void *address, size_t bytes) {
  (void)monitor;
  refused.bytes = 0;
  const pinfold_lease lease = pinfold_acquire(cache, address, bytes, PINFOLD_LOCAL_READ);
  if (lease.pin == 0 || !is_found(address, bytes) || add_subscription((uintptr_t)address, bytes, lease) != 0)
    return refuse(address, bytes, lease);
  /* Another domain's region of memory that went must not pass for valid because this one is. */
  each_stale_subscription((uintptr_t)address, bytes, gone_add);
  return 0;
}

static void unsubscribe(struct fid_mem_monitor *monitor, const void *address, size_t bytes) {
  (void)monitor;
  if (refused.bytes != 0 && refused.address == address && refused.bytes == bytes) {
    refused.bytes = 0;
    return;
  }
  pinfold_release(remove_subscription((uintptr_t)address, bytes));
}

/* pinfold_find looks at what the monitors know at the time of the call. It finds memory that is registered anew;
 * another region of the same memory may be older. */
static bool valid(struct fid_mem_monitor *monitor, const void *address, size_t bytes) {
  (void)monitor;
  const uint64_t base = (uintptr_t)address;
  return is_found(address, bytes) && (!gone_overlaps(base, bytes) || each_stale_subscription(base, bytes, NULL) == 0);
}

static struct fi_ops_mem_monitor operations = {.size = sizeof operations,
                                               .start = start,
                                               .stop = stop,
                                               .subscribe = subscribe,
                                               .unsubscribe = unsubscribe,
                                               .valid = valid};
static struct fid_mem_monitor imported = {.fid = {.fclass = FI_CLASS_MEM_MONITOR}, .export_ops = &operations};

/* Unless libfabric has asked in the meantime, and dropped its regions of that memory: it would drop new ones. */
static void tell_libfabric(uint64_t base, uint64_t bytes) {
  if (each_stale_subscription(base, bytes, NULL) == 0) return;
  imported.import_ops->notify(&imported, (const void *)(uintptr_t)base, bytes);
}

void import_monitor(void) {
  static int tried;
  if (__atomic_exchange_n(&tried, 1, __ATOMIC_RELAXED)) return;
  const int failed = fi_import(FI_VERSION(1, 16), "mr_cache", NULL, 0, 0, &imported.fid, NULL);
  if (failed != 0) report("libfabric", "libfabric does not take the monitor: %s", fi_strerror(-failed));
}

void withdraw_monitor(void) {
  if (imported.import_ops != NULL) fi_close(&imported.fid);
}
