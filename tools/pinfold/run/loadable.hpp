// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Whether an adapter's file can be loaded on this machine.
#pragma once

#include <string>

namespace tool {

/// Returns why the dynamic loader refuses the file, in its words; empty: it can be loaded. Loads it in a process of its
/// own.
[[nodiscard]] std::string why_not_loadable(const std::string& file);

/// The same, and why this machine's library of the client is not one whose calls the adapter answers.
[[nodiscard]] std::string why_not_usable(const std::string& client, const std::string& file);

/// If the arguments are those that these functions give their child, loads the named file, prints why that fails, and
/// ends the process.
void answer_whether_loadable(int argc, char** argv);

}  // namespace tool
