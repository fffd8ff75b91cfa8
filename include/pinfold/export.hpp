// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Marks symbols that the shared library exports; all others are hidden.
#pragma once

/// Before a function or a class: the shared library exports it.
#define PINFOLD_EXPORT __attribute__((visibility("default")))
