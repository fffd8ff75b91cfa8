// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/bpf/wire.hpp"

#include "monitors/bpf/failure.hpp"

#include <algorithm>
#include <cstddef>
#include <span>

namespace pinfold::monitors {

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
  const auto passed = descriptors == nullptr ? std::span<const int>() : std::span<const int>(*descriptors);
  return os::send_message(socket, std::as_bytes(std::span(&what, 1)), passed, 0) == 0;
}

result<bpf_received> bpf_receive(int socket) noexcept {
  bpf_received got;
  std::array<os::file, bpf_passed_count> passed;
  const auto message = os::receive_message(socket, std::as_writable_bytes(std::span(&got.message, 1)), passed, 0);
  if (message.bytes < 0) return bpf_fail("cannot receive from the monitor's socket");
  if (message.bytes == 0) return fail(errc::peer_gone, "the other end of the monitor's socket is closed");
  if (message.bytes != sizeof got.message || message.longer || got.message.version != bpf_wire_version)
    return fail(errc::unsupported, "the other end of the monitor's socket has another version");
  if (message.passed == passed.size() && !message.cut_off) {
    got.ring = std::move(passed[0]);
    std::move(passed.begin() + 1, passed.end(), got.links.begin());
  }
  return got;
}

}  // namespace pinfold::monitors
