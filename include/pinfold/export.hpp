// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Marks what the shared library exports; everything else is hidden.
#pragma once

#define PINFOLD_EXPORT __attribute__((visibility("default")))
