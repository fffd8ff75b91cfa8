/* SPDX-License-Identifier: BSD-3-Clause */
/* What the component tells its user. */
#ifndef PINFOLD_OPENMPI_REPORT_H
#define PINFOLD_OPENMPI_REPORT_H

#include <pinfold/pinfold.h>

/* The sink of a cache: failures go to the user, other events to those that ask with `--mca rcache_base_verbose 10`. */
void pinfold_openmpi_report(void *self, const pinfold_event *event);

/* Prints one line: the process, the monitors and the counters. */
void pinfold_openmpi_print_statistics(const pinfold_cache *cache);

#endif
