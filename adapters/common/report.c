/* SPDX-License-Identifier: BSD-3-Clause */
#include "common/report.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

static int reported; /* atomic */
static pid_t loaded_by;

void report(const char *client, const char *format, ...) {
  char line[2048]; /* written at once: processes share stderr */
  int length = snprintf(line, sizeof line, "pinfold %s: ", client);
  va_list values;
  va_start(values, format);
  length += vsnprintf(line + length, sizeof line - (size_t)length - 1, format, values);
  va_end(values);
  if (length > (int)sizeof line - 2) length = (int)sizeof line - 2;
  line[length] = '\n';
  fwrite(line, 1, (size_t)length + 1, stderr);
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

__attribute__((constructor)) static void remember_process(void) { loaded_by = getpid(); }

int is_forked_child(void) { return getpid() != loaded_by; }

/* The number makes it run after the adapter's own, which report what there is. */
__attribute__((destructor(101))) static void report_that_there_is_no_cache(void) {
  pinfold_options options;
  if (reported || is_forked_child()) return;
  pinfold_options_init(&options, sizeof options);
  if (pinfold_options_from_environment(&options) != PINFOLD_OK || !wants_statistics(&options)) return;
  report(adapter_client, "pid=%d (%s): no cache: %s", (int)getpid(), program_invocation_short_name, why_no_cache());
}
