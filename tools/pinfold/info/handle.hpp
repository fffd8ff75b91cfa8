// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// `pinfold info --handle`: what a handle is and needs, and whether this process could open it.
#pragma once

#include "cli/report.hpp"

#include <string>

namespace tool {

/// Returns what is known of the handle in the file, or in the hexadecimal digits. Throws `usage_failure` when it is
/// neither, or not a handle of the library's importers.
json handle_facts(const std::string& file_or_digits);

void print_handle(const json& facts);

}  // namespace tool
