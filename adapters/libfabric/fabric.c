/* SPDX-License-Identifier: BSD-3-Clause */
#include "libfabric/fabric.h"

#include "libfabric/domain.h"
#include "libfabric/ops.h"

#include <rdma/fi_domain.h>
#include <rdma/fi_errno.h>
#include <stdlib.h>

struct hooked_fabric {
  struct fi_ops *fid_ops; /* the provider's */
  struct fi_ops_fabric *ops;
  struct fi_ops *own_fid_ops; /* copies with operations replaced */
  struct fi_ops_fabric *own_ops;
  unsigned times_opened; /* a provider may return one fabric several times */
};

static int open_domain(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain, void *context) {
  const struct hooked_fabric *hooked = owner_of(fabric->ops);
  const int refused = hooked->ops->domain(fabric, info, domain, context);
  if (refused == 0) hook_domain(*domain, info, fabric->api_version);
  return refused;
}

static int open_domain2(struct fid_fabric *fabric, struct fi_info *info, struct fid_domain **domain, uint64_t flags,
                        void *context) {
  const struct hooked_fabric *hooked = owner_of(fabric->ops);
  const int refused = hooked->ops->domain2(fabric, info, domain, flags, context);
  if (refused == 0) hook_domain(*domain, info, fabric->api_version);
  return refused;
}

static void drop(struct hooked_fabric *hooked) {
  free_ops(hooked->own_fid_ops);
  free_ops(hooked->own_ops);
  free(hooked);
}

static int close_fabric(struct fid *fid) {
  struct fid_fabric *fabric = (struct fid_fabric *)fid;
  struct hooked_fabric *hooked = owner_of(fid->ops);
  if (hooked->times_opened > 1) {
    const int refused = hooked->fid_ops->close(fid);
    hooked->times_opened -= refused == 0;
    return refused;
  }
  fid->ops = hooked->fid_ops;
  fabric->ops = hooked->ops;
  const int refused = fid->ops->close(fid);
  if (refused != 0) {
    fid->ops = hooked->own_fid_ops;
    fabric->ops = hooked->own_ops;
    return refused;
  }
  drop(hooked);
  return 0;
}

static int is_hooked(const struct fid_fabric *fabric) { return fabric->ops->domain == open_domain; }

int hook_fabric(struct fid_fabric *fabric) {
  if (is_hooked(fabric)) {
    ++((struct hooked_fabric *)owner_of(fabric->ops))->times_opened;
    return 0;
  }
  struct hooked_fabric *hooked = calloc(1, sizeof *hooked);
  if (hooked == NULL) return -FI_ENOMEM;
  hooked->times_opened = 1;
  hooked->fid_ops = fabric->fid.ops;
  hooked->ops = fabric->ops;
  hooked->own_fid_ops = copy_ops(hooked->fid_ops, offsetof(struct fi_ops, bind), hooked);
  hooked->own_ops = copy_ops(hooked->ops, offsetof(struct fi_ops_fabric, passive_ep), hooked);
  if (hooked->own_fid_ops == NULL || hooked->own_ops == NULL) {
    drop(hooked);
    return -FI_ENOMEM;
  }
  hooked->own_fid_ops->close = close_fabric;
  hooked->own_ops->domain = open_domain;
  if (FI_CHECK_OP(hooked->ops, struct fi_ops_fabric, domain2)) hooked->own_ops->domain2 = open_domain2;
  fabric->fid.ops = hooked->own_fid_ops;
  fabric->ops = hooked->own_ops;
  return 0;
}
