/* SPDX-License-Identifier: BSD-3-Clause */
/* The registrar: a BTL's functions, which fill in Open MPI's registration objects. */
#ifndef PINFOLD_OPENMPI_REGISTRAR_H
#define PINFOLD_OPENMPI_REGISTRAR_H

#include "opal.h"

#include <pinfold/pinfold.h>

#include <stdint.h>

/* What the registrar calls. */
struct pinfold_openmpi_btl {
  mca_rcache_base_module_t *module; /* shown in the registrations */
  mca_rcache_base_resources_t calls;
};

/* Functions of a pinfold_registrar whose `self` is a pinfold_openmpi_btl. The argument of a request is null, or points
 * to the flags of the registration, a uint32_t. */
int pinfold_openmpi_open(void *self, const pinfold_open_request *what, pinfold_registration *made,
                         pinfold_error *failure);
int pinfold_openmpi_close(void *self, const pinfold_registration *made, pinfold_error *failure);

/* Returns Open MPI's registration that `detached`, of pinfold_detach, has, and notes the way back. */
mca_rcache_base_registration_t *pinfold_openmpi_of_detached(const void *detached);

/* Returns what pinfold_release_registration takes. */
const void *pinfold_openmpi_detached_of(const mca_rcache_base_registration_t *registration);

/* Translate access flags. */
uint32_t pinfold_openmpi_access(int32_t of_opal);
int32_t pinfold_openmpi_opal_access(uint32_t of_pinfold);

#endif
