/* SPDX-License-Identifier: BSD-3-Clause */
/* Open MPI's registration cache without MPI, made as BTLs make it. */
#ifndef PINFOLD_TESTS_OPENMPI_RCACHE_H
#define PINFOLD_TESTS_OPENMPI_RCACHE_H

#include "opal_config.h"

#include "opal/constants.h"
#include "opal/mca/base/base.h"
#include "opal/mca/rcache/base/base.h"
#include "opal/runtime/opal.h"
#include "opal/runtime/opal_params.h"
#include "opal/threads/mutex.h"

/* Returns a cache of the component that the environment selects, under the name that BTLs have in their source. */
static inline mca_rcache_base_module_t *make_rcache(mca_rcache_base_resources_t *calls) {
  if (opal_init(NULL, NULL) != OPAL_SUCCESS) return NULL;
  opal_set_using_threads(true);
  opal_leave_pinned = 1;
  if (mca_base_framework_open(&opal_rcache_base_framework, MCA_BASE_OPEN_DEFAULT) != OPAL_SUCCESS) return NULL;
  return mca_rcache_base_module_create("grdma", NULL, calls);
}

#endif
