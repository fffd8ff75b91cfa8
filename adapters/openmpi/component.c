/* SPDX-License-Identifier: BSD-3-Clause */
#include "component.h"

#include "module.h"
#include "name.h"
#include "parameters.h"

#include <string.h>

#define OWN_NAME "pinfold"

/* BTLs ask for a cache by name, and some have the name "grdma" in their source. Open MPI compares the component's name
 * with that of its file only while it loads the file. */
static void set_name(const char *name) {
  char *own = mca_rcache_pinfold_component.rcache_version.mca_component_name;
  strncpy(own, name, MCA_BASE_MAX_COMPONENT_NAME_LEN);
  own[MCA_BASE_MAX_COMPONENT_NAME_LEN] = 0;
}

static int open_component(void) {
  const char *as = pinfold_openmpi_name_to_take();
  if (*as != 0 && pinfold_openmpi_may_take_name(opal_rcache_base_framework.framework_selection, OWN_NAME, as))
    set_name(as);
  return OPAL_SUCCESS;
}

/* Open MPI looks for the component under its own name when it unloads it. */
static int close_component(void) {
  set_name(OWN_NAME);
  return OPAL_SUCCESS;
}

static int register_parameters(void) {
  return pinfold_openmpi_register_parameters(&mca_rcache_pinfold_component.rcache_version);
}

mca_rcache_base_component_t mca_rcache_pinfold_component = {
    .rcache_version =
        {
            MCA_RCACHE_BASE_VERSION_3_0_0,
            .mca_component_name = OWN_NAME,
            MCA_BASE_MAKE_VERSION(component, PINFOLD_VERSION_MAJOR, PINFOLD_VERSION_MINOR, PINFOLD_VERSION_PATCH),
            .mca_open_component = open_component,
            .mca_close_component = close_component,
            .mca_register_component_params = register_parameters,
        },
    .rcache_data = {MCA_BASE_METADATA_PARAM_CHECKPOINT},
    .rcache_init = pinfold_openmpi_make_module,
};
