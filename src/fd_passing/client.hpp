// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The importer's end of the exporter's Unix socket.
///
/// Nothing here allocates or locks: all of it may run in the child of a multi-threaded process that forked.
#pragma once

#include "fd_passing/exporter_id.hpp"
#include "fd_passing/wire.hpp"

#include <chrono>
#include <cstdint>

namespace pinfold::fd_passing {

/// The longest time for one answer of an exporter. Tests make it longer.
inline std::chrono::milliseconds answer_timeout{5000};

/// The longest time for a connection to an exporter that had no room for an earlier one in time: a stopped exporter
/// must not cost each open the whole `answer_timeout`.
inline constexpr std::chrono::milliseconds late_patience{1};

/// The longest time for a connection to an exporter that has ended, or is in another PID namespace: its child may keep
/// a socket whose queue nothing empties.
inline constexpr std::chrono::milliseconds gone_patience{1000};

/// Connects to a socket of the exporter; if too many connections wait there, waits for room for `patience`. Errors:
/// `closed` if no exporter listens there, `timed_out`, `out_of_resources`, `not_permitted` if the socket belongs to
/// another user.
[[nodiscard]] result<file> connect_to(const exporter_id& from, socket_purpose purpose = socket_purpose::descriptors,
                                      std::chrono::milliseconds patience = answer_timeout) noexcept;

/// Asks for one buffer's descriptor. `process` is a pidfd to watch during the wait, or nothing.
///
/// `closed`: the connection ended; a new connection may work. `stale_handle`: the exporter has freed this buffer; the
/// connection stays usable, as after a success. Other errors end the connection: `peer_gone`, `timed_out`,
/// `not_permitted`, `out_of_resources` (of this process), `driver_error` (also for want of the exporter's resources),
/// and those of the exporter's driver.
[[nodiscard]] result<file> ask(const file& socket, const file& process, std::uint64_t serial) noexcept;

}  // namespace pinfold::fd_passing
