// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Identifies the running system, to recognize a handle from another host, or from before a reboot.
#pragma once

#include <cstdint>
#include <string_view>

namespace pinfold::fd_passing {

/// Returns the number for a boot ID (the text in /proc/sys/kernel/random/boot_id), never 0.
[[nodiscard]] std::uint32_t host_number(std::string_view boot_id) noexcept;

/// Returns the number of the running system; 0 if /proc does not give it. Reads /proc once in a process. Neither
/// allocates nor locks.
[[nodiscard]] std::uint32_t this_host() noexcept;

/// Whether a handle with that host number can be from the running system. 0 means unknown, which may be any host.
[[nodiscard]] bool may_be_this_host(std::uint32_t host) noexcept;

}  // namespace pinfold::fd_passing
