/* SPDX-License-Identifier: BSD-3-Clause */
#include "libfabric/rules.h"

#include <pinfold/pinfold.h>

enum { basic_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY };

static const uint64_t local_reads = FI_SEND | FI_WRITE;
static const uint64_t local_writes = FI_RECV | FI_READ;
static const uint64_t known_access = FI_SEND | FI_WRITE | FI_RECV | FI_READ | FI_REMOTE_READ | FI_REMOTE_WRITE;

static int mode_of(const struct fi_domain_attr *domain) {
  switch (domain->mr_mode) {
    case FI_MR_BASIC: return basic_mode;
    case FI_MR_SCALABLE: return 0;
    default: return domain->mr_mode;
  }
}

const char *refusal_of(const struct fi_info *info, uint32_t api_version) {
  const int mode = mode_of(info->domain_attr);
  if (api_version < FI_VERSION(1, 5)) return "the program uses an interface older than libfabric 1.5";
  if ((mode & FI_MR_PROV_KEY) == 0) return "the program chooses the keys (no FI_MR_PROV_KEY)";
  if ((mode & FI_MR_VIRT_ADDR) == 0) return "peers use offsets into each region (no FI_MR_VIRT_ADDR)";
  if ((mode & FI_MR_ENDPOINT) != 0) return "each region belongs to an endpoint (FI_MR_ENDPOINT)";
  if ((mode & FI_MR_RMA_EVENT) != 0) return "counters are bound to regions before they are enabled (FI_MR_RMA_EVENT)";
  if ((mode & FI_MR_RAW) != 0) return "the keys are raw (FI_MR_RAW)";
  if ((mode & FI_MR_MMU_NOTIFY) != 0)
    return "the program reports page table changes for each region (FI_MR_MMU_NOTIFY)";
  return NULL;
}

int may_share(const struct fi_mr_attr *what, uint64_t flags, int device_memory) {
  return flags == 0 && what->iov_count == 1 && what->mr_iov[0].iov_len > 0 && what->offset == 0 && what->access != 0 &&
         (what->access & ~known_access) == 0 && what->auth_key_size == 0 &&
         (!device_memory || what->iface == FI_HMEM_SYSTEM);
}

uint32_t access_from(uint64_t flags) {
  uint32_t access = 0;
  if ((flags & local_reads) != 0) access |= PINFOLD_LOCAL_READ;
  if ((flags & local_writes) != 0) access |= PINFOLD_LOCAL_WRITE;
  if ((flags & FI_REMOTE_READ) != 0) access |= PINFOLD_REMOTE_READ;
  if ((flags & FI_REMOTE_WRITE) != 0) access |= PINFOLD_REMOTE_WRITE;
  return access;
}

uint64_t flags_from(uint32_t access) {
  uint64_t flags = 0;
  if ((access & PINFOLD_LOCAL_READ) != 0) flags |= local_reads;
  if ((access & PINFOLD_LOCAL_WRITE) != 0) flags |= local_writes;
  if ((access & PINFOLD_REMOTE_READ) != 0) flags |= FI_REMOTE_READ;
  if ((access & PINFOLD_REMOTE_WRITE) != 0) flags |= FI_REMOTE_WRITE;
  return flags;
}
