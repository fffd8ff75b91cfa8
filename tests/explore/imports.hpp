// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Scenarios of an import cache: of `import_operations`.
#pragma once

#include "scenario.hpp"

namespace pinfold::explore {

/// Runs the scenario's threads under the scheduler, and checks the importer and the exporter.
void play_import(const scenario& what);

}  // namespace pinfold::explore
