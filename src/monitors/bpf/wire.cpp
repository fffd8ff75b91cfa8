// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/bpf/wire.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <sys/socket.h>

namespace pinfold::monitors {

namespace {

union control {
  cmsghdr header;
  std::array<std::byte, CMSG_SPACE(sizeof(bpf_passed))> bytes;
};

// Received descriptors have to be closed in any case, also those that were not asked for.
struct taken {
  std::array<bpf_descriptor, bpf_passed_count> all;
  std::size_t count = 0;
};

taken take_descriptors(msghdr& header) noexcept {
  taken got;
  for (cmsghdr* each = CMSG_FIRSTHDR(&header); each != nullptr; each = CMSG_NXTHDR(&header, each)) {
    if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count && got.count < got.all.size(); ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(each) + i * sizeof(int), sizeof number);
      got.all[got.count++] = bpf_descriptor(number);
    }
  }
  return got;
}

}  // namespace

result<bpf_address> bpf_address::of(std::string_view path) noexcept {
  bpf_address made;
  made.name.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof made.name.sun_path)
    return fail(errc::invalid_argument, "a socket's path must have 1 to 107 characters");
  std::copy(path.begin(), path.end(), made.name.sun_path);
  made.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
  if (path.front() == '@')
    made.name.sun_path[0] = '\0';
  else
    ++made.bytes;
  return made;
}

bool bpf_send(int socket, const bpf_message& what, const bpf_passed* descriptors) noexcept {
  bpf_message copy = what;
  iovec part{&copy, sizeof copy};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  control space{};
  if (descriptors != nullptr) {
    header.msg_control = &space;
    header.msg_controllen = sizeof space;
    cmsghdr* const first = CMSG_FIRSTHDR(&header);
    first->cmsg_level = SOL_SOCKET;
    first->cmsg_type = SCM_RIGHTS;
    first->cmsg_len = CMSG_LEN(sizeof *descriptors);
    std::memcpy(CMSG_DATA(first), descriptors->data(), sizeof *descriptors);
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &header, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(sizeof copy);
}

result<bpf_received> bpf_receive(int socket) noexcept {
  bpf_received got;
  iovec part{&got.message, sizeof got.message};
  control space{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = &space;
  header.msg_controllen = sizeof space;
  ssize_t bytes = 0;
  do {
    bytes = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  } while (bytes < 0 && errno == EINTR);
  if (bytes < 0) return bpf_fail("cannot receive from the monitor's socket");
  taken passed = take_descriptors(header);
  if (bytes == 0) return fail(errc::peer_gone, "the other end of the monitor's socket is closed");
  if (bytes != static_cast<ssize_t>(sizeof got.message) || got.message.version != bpf_wire_version)
    return fail(errc::unsupported, "the other end of the monitor's socket has another version");
  if (passed.count == passed.all.size()) {
    got.ring = std::move(passed.all[0]);
    for (std::size_t i = 0; i < got.links.size(); ++i) got.links[i] = std::move(passed.all[i + 1]);
  }
  return got;
}

}  // namespace pinfold::monitors
