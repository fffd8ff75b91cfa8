/* SPDX-License-Identifier: BSD-3-Clause */
#include "component.h"

#include "common/line.h"
#include "module.h"
#include "name.h"
#include "parameters.h"

#include "opal/runtime/opal.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define OWN_NAME "pinfold"

/* BTLs ask for a cache by name, and some have the name "grdma" in their source. Open MPI compares the component's name
 * with that of its file only while it loads the file. */
static void set_name(const char *name) {
  char *own = mca_rcache_pinfold_component.rcache_version.mca_component_name;
  strncpy(own, name, MCA_BASE_MAX_COMPONENT_NAME_LEN);
  own[MCA_BASE_MAX_COMPONENT_NAME_LEN] = 0;
}

/* BTLs get the first component of a name. */
static void go_first(void) {
  opal_list_t *components = &opal_rcache_base_framework.framework_components;
  mca_base_component_list_item_t *one;
  OPAL_LIST_FOREACH(one, components, mca_base_component_list_item_t) {
    if (one->cli_component != &mca_rcache_pinfold_component.rcache_version) continue;
    opal_list_remove_item(components, &one->super);
    opal_list_prepend(components, &one->super);
    return;
  }
}

static bool wants_statistics; /* Open MPI forgets the parameters before it closes the component */

static int open_component(void) {
  wants_statistics = pinfold_openmpi_wants_statistics();
  const char *as = pinfold_openmpi_name_to_take();
  if (*as == 0) return OPAL_SUCCESS;
  if (pinfold_openmpi_replaces())
    go_first();
  else if (!pinfold_openmpi_may_take_name(opal_rcache_base_framework.framework_selection, OWN_NAME, as))
    return OPAL_SUCCESS;
  set_name(as);
  return OPAL_SUCCESS;
}

/* Open MPI looks for the component under its own name when it unloads it. */
static int close_component(void) {
  if (wants_statistics && !pinfold_openmpi_was_asked())
    print_line("openmpi", "pid=%d no cache: no BTL of this process asked for one by the name %s", (int)getpid(),
               mca_rcache_pinfold_component.rcache_version.mca_component_name);
  set_name(OWN_NAME);
  return OPAL_SUCCESS;
}

/* Another series has other structures, but the same versions of interfaces. A vendor's version need not be a number. */
static bool is_other_series(void) {
  unsigned major, minor;
  return sscanf(opal_version_string, "%u.%u", &major, &minor) == 2 &&
         (major != OPAL_MAJOR_VERSION || minor != OPAL_MINOR_VERSION);
}

static int register_parameters(void) {
  if (is_other_series()) {
    print_line("openmpi", "left out: the component is for Open MPI %d.%d, and this is %s", OPAL_MAJOR_VERSION,
               OPAL_MINOR_VERSION, opal_version_string);
    return OPAL_ERR_NOT_AVAILABLE;
  }
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
