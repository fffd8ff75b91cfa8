/* SPDX-License-Identifier: BSD-3-Clause */
#include "report.h"

#include "common/line.h"
#include "opal.h"

#include <unistd.h>

/* Open MPI may leave registrations to the end. */
static bool is_failure(const pinfold_event *event) {
  return event->level >= PINFOLD_FAILURE && event->kind != PINFOLD_EVENT_LEASES_OUTLIVE_CACHE;
}

static const char *message_of(const pinfold_error *cause) {
  return cause == NULL || cause->message == NULL ? "" : cause->message;
}

static const char *native_of(const pinfold_error *cause) {
  return cause == NULL || cause->native == 0 ? "" : opal_strerror(cause->native);
}

void pinfold_openmpi_report(void *self, const pinfold_event *event) {
  (void)self;
  const int stream = is_failure(event) ? 0 : opal_rcache_base_framework.framework_output;
  const char *message = message_of(event->cause), *native = native_of(event->cause);
  opal_output_verbose(is_failure(event) ? 0 : MCA_BASE_VERBOSE_COMPONENT, stream,
                      "pinfold openmpi: %s: %s: %#llx, %llu bytes%s%s%s%s%s%s", event->cache,
                      pinfold_event_name(event->kind), (unsigned long long)event->base,
                      (unsigned long long)event->bytes, *event->text == 0 ? "" : ": ", event->text,
                      *message == 0 ? "" : ": ", message, *native == 0 ? "" : ": ", native);
}

void pinfold_openmpi_print_statistics(const pinfold_cache *cache) {
  char counters[2048];
  char monitors[256];
  pinfold_describe(cache, counters, sizeof counters);
  pinfold_monitors(cache, monitors, sizeof monitors);
  print_line("openmpi", "pid=%d monitors=%s %s", (int)getpid(), monitors, counters);
}
