// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The address that a host uses, and the identity of the host.
#pragma once

#include <string>

namespace tool {

/// Returns this host's address that `wanted` means: an address, a network like 10.1.0.0/16, or an interface's name, so
/// that all ranks can get the same option. Throws `usage_failure`, which names the host's addresses.
[[nodiscard]] std::string own_address(const std::string& wanted);

/// Returns a text that is the same for all processes that reach each other at 127.0.0.1, and for no others.
[[nodiscard]] std::string this_network();

}  // namespace tool
