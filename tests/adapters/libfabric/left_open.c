/* SPDX-License-Identifier: BSD-3-Clause */
/* Opens a domain of the provider sockets, and ends without closing it. */
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

int main(void) {
  struct fi_info *hints = fi_allocinfo(), *found = NULL;
  struct fid_fabric *fabric = NULL;
  struct fid_domain *domain = NULL;
  hints->fabric_attr->prov_name = "sockets"; /* the program ends before it would be freed */
  if (fi_getinfo(FI_VERSION(1, 16), NULL, NULL, 0, hints, &found) != 0) return 1;
  if (fi_fabric(found->fabric_attr, &fabric, NULL) != 0) return 2;
  return fi_domain(fabric, found, &domain, NULL) != 0;
}
