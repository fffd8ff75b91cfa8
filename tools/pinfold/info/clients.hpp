// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The clients that run over pinfold here, and their own caches.
#pragma once

#include "cli/report.hpp"

namespace tool {

/// Returns a row for each client of `pinfold run`: `adapter` (its file, or empty), `works`, `why_not`, and `own_cache`:
/// whether the client's own cache keeps registrations where `pinfold run` does not replace it, by the environment.
[[nodiscard]] json client_facts();
void print_clients(const json& rows);

}  // namespace tool
