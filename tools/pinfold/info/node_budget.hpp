// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The processes that share an account of registered bytes, and what each has taken.
#pragma once

#include <string>

namespace tool {

/// Prints the account's state, as a table or as JSON. Throws `failure`.
void show_node_budget(const std::string& name, bool as_json);

}  // namespace tool
