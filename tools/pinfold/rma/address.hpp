// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Which of its addresses a host uses, and which host this is.
#pragma once

#include <string>

namespace tool {

/// This host's address that `wanted` means: an address, a network as 10.1.0.0/16, or an interface's name; so that all
/// ranks can be told the same. Throws `usage_failure`, which names those that there are.
[[nodiscard]] std::string own_address(const std::string& wanted);

/// The same for all processes that reach each other at 127.0.0.1, and for no others.
[[nodiscard]] std::string this_network();

}  // namespace tool
