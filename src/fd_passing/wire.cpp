// SPDX-License-Identifier: BSD-3-Clause
#include "fd_passing/wire.hpp"

#include <span>
#include <string_view>

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
