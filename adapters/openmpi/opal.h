/* SPDX-License-Identifier: BSD-3-Clause */
/* The inner headers of Open MPI 4.1 that the component is built with. opal_config.h must come first. */
#ifndef PINFOLD_OPENMPI_OPAL_H
#define PINFOLD_OPENMPI_OPAL_H

#include "opal_config.h"

#include "opal/constants.h"
#include "opal/mca/base/base.h"
#include "opal/mca/rcache/base/base.h"
#include "opal/mca/rcache/rcache.h"
#include "opal/util/error.h"
#include "opal/util/output.h"

#if OPAL_MAJOR_VERSION != 4 || OPAL_MINOR_VERSION != 1
#error "the component is for Open MPI 4.1: other series have other structures"
#endif

#endif
