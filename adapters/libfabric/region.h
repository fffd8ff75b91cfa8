/* SPDX-License-Identifier: BSD-3-Clause */
/* The replaced operations that register memory. */
#ifndef PINFOLD_LIBFABRIC_REGION_H
#define PINFOLD_LIBFABRIC_REGION_H

#include <rdma/fi_domain.h>

int register_buffer(struct fid *fid, const void *buffer, size_t bytes, uint64_t access, uint64_t offset, uint64_t key,
                    uint64_t flags, struct fid_mr **region, void *context);
int register_vector(struct fid *fid, const struct iovec *vector, size_t count, uint64_t access, uint64_t offset,
                    uint64_t key, uint64_t flags, struct fid_mr **region, void *context);
int register_as_told(struct fid *fid, const struct fi_mr_attr *what, uint64_t flags, struct fid_mr **region);

#endif
