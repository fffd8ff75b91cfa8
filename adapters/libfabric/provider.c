/* SPDX-License-Identifier: BSD-3-Clause */
/* A provider without addresses or endpoints of its own: libfabric calls it a hook, and hands it each fabric that is
 * opened, if FI_HOOK names it. */
#include "common/report.h"
#include "libfabric/fabric.h"
#include "libfabric/monitor.h"

#include <pinfold/pinfold.h>
#include <rdma/providers/fi_prov.h>
#include <string.h>

static int open_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);

static struct fi_provider provider = {
    .version = FI_VERSION(PINFOLD_API_VERSION >> 16, PINFOLD_API_VERSION >> 8 & 0xff),
    .fi_version = FI_VERSION(1, 16),
    .name = "ofi_hook_pinfold",
    .fabric = open_fabric,
    .cleanup = withdraw_monitor,
};

static int is_monitor_only(void) {
  char *mode = NULL;
  if (fi_param_get(&provider, "mode", &mode) != 0 || strcmp(mode, "cache") == 0) return 0;
  if (strcmp(mode, "monitor") == 0) return 1;
  report("libfabric", "FI_OFI_HOOK_PINFOLD_MODE=%s: it may be cache or monitor", mode);
  return 0;
}

static int open_fabric(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context) {
  (void)context;
  *fabric = attr->fabric;
  import_monitor(); /* libfabric's cache below this one must not be stale either */
  return is_monitor_only() ? 0 : hook_fabric(attr->fabric);
}

PINFOLD_API struct fi_provider *fi_prov_ini(void);
struct fi_provider *fi_prov_ini(void) {
  fi_param_define(&provider, "mode", FI_PARAM_STRING,
                  "cache: serve registrations from a cache of pinfold's (default); monitor: leave them to libfabric's "
                  "cache, and tell it which memory is gone");
  return &provider;
}
