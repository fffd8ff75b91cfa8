/* SPDX-License-Identifier: BSD-3-Clause */
/* The component, as Open MPI's component loader finds it. */
#ifndef PINFOLD_OPENMPI_COMPONENT_H
#define PINFOLD_OPENMPI_COMPONENT_H

#include "opal.h"

extern OPAL_MODULE_DECLSPEC mca_rcache_base_component_t mca_rcache_pinfold_component;

#endif
