// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Where readers of the process's memory find pins.
#pragma once

#include "debugging/table.hpp"

namespace pinfold::core {

/// The places in ledgers, whose fields are private.
extern const debugging::ledger_layout ledger_layout;

}  // namespace pinfold::core
