// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What exporter and importer say to each other over the Unix socket.
///
/// The socket is SOCK_SEQPACKET with an abstract name made from the exporter's number, so nothing is left in the file
/// system, and it ends with its owner. An importer sends a `request` and reads one `reply`, which carries a descriptor
/// when `state` is `granted`; then it may send the next. Anything else makes the exporter hang up.
///
/// Nothing here allocates or locks: all of it may run in the child of a multi-threaded process that forked.
#pragma once

#include "exchange/file.hpp"

#include <cstdint>
#include <sys/socket.h>
#include <sys/un.h>

namespace pinfold::exchange {

/// The letters PFMFDSC and the version of the protocol.
inline constexpr std::uint64_t wire_magic = 0x5046'4d46'4453'4302;

struct request {
  std::uint64_t magic;
  std::uint64_t serial;
};

enum class reply_state : std::uint8_t {
  granted,    ///< the descriptor comes with it
  freed,      ///< no such buffer, or not any more
  refused,    ///< not for this user
  failed,     ///< the exporter's driver refused; `code`, `kind` and `native` say why
  exhausted,  ///< the exporter's system has no room for the descriptor on its way
};

struct reply {
  std::uint64_t magic = wire_magic;
  std::uint64_t serial;  ///< of the request
  reply_state state;
  errc code = errc::driver_error;
  native_kind kind = native_kind::posix;
  std::uint8_t reserved = 0;
  std::int32_t native = 0;  ///< an `errno` value, 0, or what `kind` says
};

struct socket_address {
  sockaddr_un name;
  socklen_t bytes;
};

/// Where the exporter of that number listens.
[[nodiscard]] socket_address address_of(std::uint64_t exporter) noexcept;

/// User and process at the other end, as the kernel saw them when one connected and the other began to listen.
[[nodiscard]] result<ucred> other_end(const file& socket) noexcept;

/// Sends without waiting, `descriptor` with it unless that is -1. Returns 0 or an `errno` value.
[[nodiscard]] int send_reply(const file& socket, reply what, int descriptor) noexcept;

/// A reply as it came, and the descriptor that came with it, if any.
struct received_reply {
  reply what;
  file descriptor;
  bool cut_off;  ///< something that came with it was thrown away: no room for a descriptor, or more than one
};

/// Takes a reply that is already there. `closed` when the other end hung up or what came is not a reply.
[[nodiscard]] result<received_reply> receive_reply(const file& socket) noexcept;

}  // namespace pinfold::exchange
