// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The messages between an exporter and an importer over the Unix socket.
///
/// The socket is SOCK_SEQPACKET with an abstract name made from the exporter's number, so it leaves nothing in the file
/// system and ends with its owner. An importer sends a `request` and reads one `reply`, which carries a descriptor if
/// `state` is `granted`. Then the importer may send the next request. The exporter closes the connection on anything
/// else.
///
/// Nothing here allocates or locks: all of it may run in the child of a multi-threaded process that forked.
#pragma once

#include "fd_passing/exporter_id.hpp"
#include "os/message.hpp"

#include <cstdint>
#include <sys/socket.h>
#include <sys/un.h>
#include <utility>

namespace pinfold::fd_passing {

using os::file;

/// The letters PFMFDSC and the version of the protocol.
inline constexpr std::uint64_t wire_magic = 0x5046'4d46'4453'4302;

struct request {
  std::uint64_t magic;
  std::uint64_t serial;
};

enum class reply_state : std::uint8_t {
  granted,    ///< the descriptor comes with the reply
  freed,      ///< there is no such buffer, or it has been freed
  refused,    ///< the exporter does not serve this user
  failed,     ///< the exporter's driver refused, with `code`, `kind` and `native`
  exhausted,  ///< the exporter's system has no room for a descriptor in flight
};

struct reply {
  std::uint64_t magic = wire_magic;
  std::uint64_t serial;  ///< of the request
  reply_state state;
  errc code = errc::driver_error;
  native_kind kind = native_kind::posix;
  std::uint8_t reserved = 0;
  std::int32_t native = 0;  ///< an `errno` value, 0, or according to `kind`
};

struct socket_address {
  sockaddr_un name;
  socklen_t bytes;
};

/// The sockets of an exporter.
enum class socket_purpose : std::uint8_t {
  descriptors,  ///< passes descriptors
  release,      ///< asks importers to let memory go
};

/// Returns the address at which the exporter with that number listens.
[[nodiscard]] socket_address address_of(std::uint64_t exporter,
                                        socket_purpose purpose = socket_purpose::descriptors) noexcept;

/// Listens there. Errors: the system's.
[[nodiscard]] result<file> listen_at(std::uint64_t exporter, socket_purpose purpose) noexcept;

/// Closes a socket that listens. Another user may have connected, and the close of that connection may take as long as
/// that user likes: no thread waits for it (os/background_closer.hpp).
void close_listener(file listener) noexcept;

/// A new exporter, and sockets that listen at its names, until a server takes them.
struct new_exporter {
  exporter_id id;
  file descriptors;
  file releases;

  new_exporter(const exporter_id& made, file first, file second) noexcept
      : id(made), descriptors(std::move(first)), releases(std::move(second)) {}
  new_exporter(new_exporter&&) noexcept = default;
  new_exporter& operator=(new_exporter&&) = delete;
  ~new_exporter() {
    close_listener(std::move(descriptors));
    close_listener(std::move(releases));
  }
};

/// Makes an exporter that listens at these of its names. The first socket shows the exporter's number to all processes
/// of the host, and another user's may take the second name before this one: then makes another exporter. Errors: those
/// of `new_origin`, and the system's.
[[nodiscard]] result<new_exporter> listen_as_new(bool descriptors, bool releases) noexcept;

/// Sends a reply without waiting, with `descriptor` unless that is -1. Returns 0 or an `errno` value.
[[nodiscard]] int send_reply(const file& socket, reply what, int descriptor) noexcept;

/// A received reply, and the descriptor that came with it, if any.
struct received_reply {
  reply what;
  file descriptor;
  bool cut_off;  ///< the kernel dropped a part of it: no room for a descriptor, or more than one
};

/// Takes a reply that has already arrived. `closed` if the other end hung up, or if the message is not a reply.
[[nodiscard]] result<received_reply> receive_reply(const file& socket) noexcept;

}  // namespace pinfold::fd_passing
