/* SPDX-License-Identifier: BSD-3-Clause */
/* An rcache module: one cache of one BTL module. */
#ifndef PINFOLD_OPENMPI_MODULE_H
#define PINFOLD_OPENMPI_MODULE_H

#include "opal.h"

/* Makes a module over the BTL's functions. Null if the library refuses. */
mca_rcache_base_module_t *pinfold_openmpi_make_module(mca_rcache_base_resources_t *resources);

/* Returns whether a BTL has asked for a module. */
bool pinfold_openmpi_was_asked(void);

#endif
