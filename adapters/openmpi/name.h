/* SPDX-License-Identifier: BSD-3-Clause */
/* Under which name the component may be found. */
#ifndef PINFOLD_OPENMPI_NAME_H
#define PINFOLD_OPENMPI_NAME_H

#include <stdbool.h>

/* Returns whether the selection of rcache components, as given to `--mca rcache` (null: none was given), opens the
 * component `own` and keeps a component with the name `other` closed. */
bool pinfold_openmpi_may_take_name(const char *selection, const char *own, const char *other);

#endif
