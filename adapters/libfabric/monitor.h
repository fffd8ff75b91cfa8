/* SPDX-License-Identifier: BSD-3-Clause */
/* pinfold's monitors behind libfabric's own registration cache. */
#ifndef PINFOLD_LIBFABRIC_MONITOR_H
#define PINFOLD_LIBFABRIC_MONITOR_H

/* Tells libfabric to ask pinfold whether memory is still what was registered. Before the first domain is opened: later,
 * libfabric's own monitor runs already. Says on stderr if that fails. Only the first call does anything. */
void import_monitor(void);

/* Tells libfabric that the monitor ends: before the process does. */
void withdraw_monitor(void);

#endif
