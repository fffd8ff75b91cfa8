/* SPDX-License-Identifier: BSD-3-Clause */
/* A provider without addresses or endpoints of its own: libfabric calls it a hook, and hands it each fabric that is
 * opened, if FI_HOOK names it. */
#include "libfabric/fabric.h"

#include <pinfold/pinfold.h>
#include <rdma/providers/fi_prov.h>

static int open_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);

static struct fi_provider provider = {
    .version = FI_VERSION(PINFOLD_API_VERSION >> 16, PINFOLD_API_VERSION >> 8 & 0xff),
    .fi_version = FI_VERSION(1, 16),
    .name = "ofi_hook_pinfold",
    .fabric = open_fabric,
};

static int open_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context) {
  (void)context;
  const int refused = hook_fabric(attr->fabric);
  if (refused == 0)
    *fabric = attr->fabric;
  return refused;
}

PINFOLD_API struct fi_provider *fi_prov_ini(void);
struct fi_provider *fi_prov_ini(void) {
  return &provider;
}
