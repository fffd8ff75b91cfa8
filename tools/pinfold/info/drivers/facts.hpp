// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The interface between the tool and the modules that it loads only to report on a driver: the tool runs where the
/// driver's libraries are not installed.
#pragma once

/// The one function of each module. Returns a JSON object, in memory of the module. Not thread-safe.
extern "C" [[gnu::visibility("default")]] const char* pinfold_driver_facts();
