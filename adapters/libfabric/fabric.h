/* SPDX-License-Identifier: BSD-3-Clause */
/* Fabrics of other providers, whose domains are hooked as they are opened. */
#ifndef PINFOLD_LIBFABRIC_FABRIC_H
#define PINFOLD_LIBFABRIC_FABRIC_H

#include <rdma/fabric.h>

/* Replaces operations of the fabric, until it is closed. Returns 0, or a negative fi_errno with nothing changed. */
int hook_fabric(struct fid_fabric *fabric);

#endif
