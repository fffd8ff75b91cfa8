// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The seam between the tool and what it loads only to be told of a driver: the tool runs where the driver's libraries
/// are not installed.
#pragma once

/// Each module's one function: a JSON object, in memory of the module. Not thread-safe.
extern "C" [[gnu::visibility("default")]] const char* pinfold_driver_facts();
