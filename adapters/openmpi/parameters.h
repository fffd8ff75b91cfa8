/* SPDX-License-Identifier: BSD-3-Clause */
/* The component's parameters, `rcache_pinfold_...`. */
#ifndef PINFOLD_OPENMPI_PARAMETERS_H
#define PINFOLD_OPENMPI_PARAMETERS_H

#include "opal.h"

#include <pinfold/pinfold.h>

/* Declares the parameters to Open MPI, which reads their values. Returns an OPAL_ code. */
int pinfold_openmpi_register_parameters(const mca_base_component_t *component);

/* Returns the name under which BTLs shall find the component; empty: its own. */
const char *pinfold_openmpi_name_to_take(void);

/* Returns whether the component shall take that name from another that is opened. */
bool pinfold_openmpi_replaces(void);

/* Returns whether the environment and the parameters ask for statistics; wrong values ask for nothing. */
bool pinfold_openmpi_wants_statistics(void);

/* Writes the options of a cache: the component's defaults, changed by the environment, changed by the parameters that
 * the user has set. Says which values are wrong, and leaves those out. */
void pinfold_openmpi_read_options(pinfold_options *options);

#endif
