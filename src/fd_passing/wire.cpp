// SPDX-License-Identifier: BSD-3-Clause
#include "fd_passing/wire.hpp"

#include "fd_passing/process.hpp"
#include "os/background_closer.hpp"
#include "os/message.hpp"

#include <cerrno>
#include <span>
#include <string_view>
#include <sys/socket.h>
#include <utility>

namespace pinfold::fd_passing {

socket_address address_of(std::uint64_t exporter, socket_purpose purpose) noexcept {
  const std::string_view prefix = purpose == socket_purpose::release ? "pinfold-release-" : "pinfold-export-";
  constexpr std::string_view digits = "0123456789abcdef";
  socket_address made{{.sun_family = AF_UNIX, .sun_path = {}}, 0};
  char* to = made.name.sun_path + 1;  // the leading zero makes the name an abstract one
  to += prefix.copy(to, prefix.size());
  for (int shift = 60; shift >= 0; shift -= 4) *to++ = digits[(exporter >> static_cast<unsigned>(shift)) & 0xfU];
  made.bytes = static_cast<socklen_t>(to - reinterpret_cast<char*>(&made.name));
  return made;
}

result<file> listen_at(std::uint64_t exporter, socket_purpose purpose) noexcept {
  file listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener) return os::fail_system("cannot create the exporter's socket");
  os::refuse_descriptors(listener);  // before it listens: connections have what the listener had when they were made
  const socket_address address = address_of(exporter, purpose);
  // Importers wait in connect(2). A longer queue would be full of the connections of other users, which come first.
  constexpr int most_waiting = 16;
  if (::bind(listener.number(), reinterpret_cast<const sockaddr*>(&address.name), address.bytes) != 0 ||
      ::listen(listener.number(), most_waiting) != 0) {
    return os::fail_system("cannot listen on the exporter's socket");
  }
  return listener;
}

void close_listener(file listener) noexcept {
  if (listener) os::background_closer(os::refuse_descriptors(listener)).close(std::move(listener));
}

result<new_exporter> listen_as_new(bool descriptors, bool releases) noexcept {
  constexpr int most_tries = 100;
  for (int tries = 1;; ++tries) {
    const auto id = new_origin();
    if (!id) return tl::unexpected(id.error());
    auto first = descriptors ? listen_at(id->exporter, socket_purpose::descriptors) : result<file>();
    auto second = first && releases ? listen_at(id->exporter, socket_purpose::release) : result<file>();
    if (first && second) return new_exporter(*id, std::move(*first), std::move(*second));
    const error failure = first ? second.error() : first.error();
    if (first) close_listener(std::move(*first));
    if (failure.native != EADDRINUSE || tries == most_tries) return tl::unexpected(failure);
  }
}

int send_reply(const file& socket, reply what, int descriptor) noexcept {
  const std::span descriptors(&descriptor, descriptor >= 0 ? 1 : 0);
  return os::send_message(socket.number(), std::as_bytes(std::span(&what, 1)), descriptors, MSG_DONTWAIT);
}

result<received_reply> receive_reply(const file& socket) noexcept {
  received_reply got{};
  const auto body = std::as_writable_bytes(std::span(&got.what, 1));
  const auto message = os::receive_message(socket.number(), body, {&got.descriptor, 1}, MSG_DONTWAIT);
  if (message.bytes < 0) return fail_errno(errc::closed, errno, "the connection to the exporter broke");
  got.cut_off = message.cut_off;
  if (message.bytes != sizeof got.what || message.longer || got.what.magic != wire_magic)
    return fail(errc::closed, "the exporter closed the connection or sent a malformed message");
  return got;
}

}  // namespace pinfold::fd_passing
