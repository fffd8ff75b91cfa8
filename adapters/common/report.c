/* SPDX-License-Identifier: BSD-3-Clause */
#include "common/report.h"

#include "common/line.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static int reported; /* atomic */
static pid_t loaded_by;
static int forked; /* a process 1 of a container may have a child that is process 1, too */

void report(const char *client, const char *format, ...) {
  va_list values;
  va_start(values, format);
  print_values(client, format, values);
  va_end(values);
  __atomic_store_n(&reported, 1, __ATOMIC_RELAXED);
}

void report_event(void *client, const pinfold_event *event) {
  if (event->kind != PINFOLD_EVENT_STATISTICS && event->level < PINFOLD_FAILURE) return;
  report(client, "%s: %s: %s%s%s", event->cache, pinfold_event_name(event->kind), event->text,
         event->cause != NULL ? ": " : "", event->cause != NULL ? event->cause->message : "");
}

void default_options(pinfold_options *options, const char *client) {
  pinfold_options_init(options, sizeof *options);
  snprintf(options->name, sizeof options->name, "%s", client);
  options->full = PINFOLD_FULL_BYPASS;
  options->sink = report_event;
  options->sink_self = (void *)(uintptr_t)client;
}

void apply_environment(pinfold_options *options, const char *client) {
  if (pinfold_options_from_environment(options) != PINFOLD_OK)
    report(client, "%s: the options of the environment are ignored", pinfold_last_error()->message);
}

int wants_statistics(const pinfold_options *options) { return (options->flags & PINFOLD_STATISTICS_AT_EXIT) != 0; }

void report_statistics(const char *client, const char *name, const pinfold_cache *cache) {
  char line[1500], monitors[256];
  pinfold_describe(cache, line, sizeof line);
  pinfold_monitors(cache, monitors, sizeof monitors);
  report(client, "%s: statistics: %s; monitors: %s", name, line, monitors);
}

static void note_fork(void) { forked = 1; }

__attribute__((constructor)) static void remember_process(void) {
  loaded_by = getpid();
  pthread_atfork(NULL, NULL, note_fork);
}

int is_forked_child(void) { return forked || getpid() != loaded_by; }

/* The number makes it run after the adapter's own, which report what there is. */
__attribute__((destructor(101))) static void report_that_there_is_no_cache(void) {
  pinfold_options options;
  if (reported || is_forked_child()) return;
  pinfold_options_init(&options, sizeof options);
  if (pinfold_options_from_environment(&options) != PINFOLD_OK || !wants_statistics(&options)) return;
  report(adapter_client, "pid=%d (%s): no cache: %s", (int)getpid(), program_invocation_short_name, why_no_cache());
}
