// SPDX-License-Identifier: BSD-3-Clause
#include "fd_passing/wire.hpp"

#include <cstddef>
#include <cstring>
#include <string_view>

namespace pinfold::fd_passing {

namespace {

/// The size of one descriptor's control message. CMSG_SPACE has padding that a second descriptor would fit into.
constexpr std::size_t control_bytes = CMSG_LEN(sizeof(int));

struct alignas(cmsghdr) control_buffer {
  std::byte bytes[CMSG_SPACE(sizeof(int))]{};
};

file descriptor_in(msghdr& message) noexcept {
  const cmsghdr* control = CMSG_FIRSTHDR(&message);
  if (control == nullptr || control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) return file();
  if (control->cmsg_len < control_bytes) return file();
  int number = -1;
  std::memcpy(&number, CMSG_DATA(control), sizeof number);
  return file(number);
}

}  // namespace

socket_address address_of(std::uint64_t exporter) noexcept {
  constexpr std::string_view prefix = "pinfold-export-";
  constexpr std::string_view digits = "0123456789abcdef";
  socket_address made{{.sun_family = AF_UNIX, .sun_path = {}}, 0};
  char* to = made.name.sun_path + 1;  // the leading zero makes the name an abstract one
  to += prefix.copy(to, prefix.size());
  for (int shift = 60; shift >= 0; shift -= 4) *to++ = digits[(exporter >> static_cast<unsigned>(shift)) & 0xfU];
  made.bytes = static_cast<socklen_t>(to - reinterpret_cast<char*>(&made.name));
  return made;
}

result<ucred> other_end(const file& socket) noexcept {
  ucred seen{};
  socklen_t bytes = sizeof seen;
  if (::getsockopt(socket.number(), SOL_SOCKET, SO_PEERCRED, &seen, &bytes) != 0) {
    return fail_system("cannot read the credentials of the socket's other end");
  }
  return seen;
}

int send_reply(const file& socket, reply what, int descriptor) noexcept {
  iovec body{.iov_base = &what, .iov_len = sizeof what};
  control_buffer control;
  msghdr message{};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control.bytes;
    message.msg_controllen = sizeof control.bytes;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = control_bytes;
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  return ::sendmsg(socket.number(), &message, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? errno : 0;
}

result<received_reply> receive_reply(const file& socket) noexcept {
  received_reply got{};
  iovec body{.iov_base = &got.what, .iov_len = sizeof got.what};
  control_buffer control;
  msghdr message{};
  message.msg_iov = &body;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = control_bytes;
  const ssize_t bytes = ::recvmsg(socket.number(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (bytes < 0) return fail_errno(errc::closed, errno, "the connection to the exporter broke");
  got.descriptor = descriptor_in(message);
  got.cut_off = (message.msg_flags & MSG_CTRUNC) != 0;
  const bool whole = bytes == sizeof got.what && (message.msg_flags & MSG_TRUNC) == 0;
  if (!whole || got.what.magic != wire_magic)
    return fail(errc::closed, "the exporter closed the connection or sent a malformed message");
  return got;
}

}  // namespace pinfold::fd_passing
