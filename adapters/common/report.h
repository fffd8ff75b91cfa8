/* SPDX-License-Identifier: BSD-3-Clause */
/* What an adapter writes to stderr, and the options of its caches. */
#ifndef PINFOLD_ADAPTERS_REPORT_H
#define PINFOLD_ADAPTERS_REPORT_H

#include <pinfold/pinfold.h>

/* Writes one line: "pinfold <client>: ...". */
void report(const char *client, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Each adapter defines these two. A program that ends with nothing reported gets a line with the reason, if the user
 * wants statistics. */
extern const char adapter_client[];
const char *why_no_cache(void);

/* Reports the counters and monitors of a cache. */
void report_statistics(const char *client, const char *name, const pinfold_cache *cache);

/* Whether this process is a child by fork(2) of the one that loaded the adapter. */
int is_forked_child(void);

/* A sink: reports statistics and failures. `client` is the name. */
void report_event(void *client, const pinfold_event *event);

/* Writes the defaults of an adapter's cache: never refuse a client for want of room. The sink reports the statistics,
 * if PINFOLD_STATISTICS_AT_EXIT is on, and failures. `client` must live on. */
void default_options(pinfold_options *options, const char *client);

/* Changes the options by the environment; reports what is wrong there, and then changes nothing. */
void apply_environment(pinfold_options *options, const char *client);

/* Whether the user wants statistics. */
int wants_statistics(const pinfold_options *options);

#endif
