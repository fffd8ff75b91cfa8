// SPDX-License-Identifier: BSD-3-Clause
#include "os/message.hpp"

#include "os/own_user.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <sys/syscall.h>
#include <unistd.h>

namespace pinfold::os {

namespace {

struct alignas(cmsghdr) control_buffer {
  std::array<std::byte, CMSG_SPACE(most_passed * sizeof(int))> bytes{};
};

// The size of a control message. CMSG_SPACE includes padding, in which another descriptor would fit.
std::size_t control_bytes(std::size_t descriptors) noexcept { return CMSG_LEN(descriptors * sizeof(int)); }

std::size_t take_descriptors(msghdr& header, std::span<file> into) noexcept {
  const cmsghdr* const control = CMSG_FIRSTHDR(&header);
  if (control == nullptr || control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) return 0;
  const auto count = std::min((control->cmsg_len - control_bytes(0)) / sizeof(int), into.size());
  for (std::size_t i = 0; i < count; ++i) {
    int number = -1;
    std::memcpy(&number, CMSG_DATA(control) + i * sizeof number, sizeof number);
    into[i] = file(number);
  }
  return count;
}

bool set_passing(const file& socket, int allowed) noexcept {
  constexpr int pass_rights = 83;  // SO_PASSRIGHTS, in headers since Linux 6.16
  return ::setsockopt(socket.number(), SOL_SOCKET, pass_rights, &allowed, sizeof allowed) == 0;
}

template <class Call>
ssize_t uninterrupted(Call&& call) noexcept {
  ssize_t done = 0;
  do {
    done = call();
  } while (done < 0 && errno == EINTR);
  return done;
}

}  // namespace

int send_message(int socket, std::span<const std::byte> body, std::span<const int> descriptors, int flags) noexcept {
  iovec part{.iov_base = const_cast<std::byte*>(body.data()), .iov_len = body.size()};
  control_buffer control;
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = control.bytes.data();
    header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const first = CMSG_FIRSTHDR(&header);
    first->cmsg_level = SOL_SOCKET;
    first->cmsg_type = SCM_RIGHTS;
    first->cmsg_len = control_bytes(descriptors.size());
    std::memcpy(CMSG_DATA(first), descriptors.data(), descriptors.size_bytes());
  }
  return uninterrupted([&] { return ::sendmsg(socket, &header, flags | MSG_NOSIGNAL); }) < 0 ? errno : 0;
}

received_message receive_message(int socket, std::span<std::byte> body, std::span<file> passed, int flags) noexcept {
  iovec part{.iov_base = body.data(), .iov_len = body.size()};
  control_buffer control;
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.bytes.data();
  header.msg_controllen = control_bytes(passed.size());
  const auto bytes = uninterrupted([&] { return ::recvmsg(socket, &header, flags | MSG_CMSG_CLOEXEC); });
  if (bytes < 0) return {bytes, 0, false, false};
  const auto taken = take_descriptors(header, passed);
  const bool lost = std::any_of(passed.begin(), passed.begin() + static_cast<std::ptrdiff_t>(taken),
                                [](const file& one) { return !one; });  // no number above 2 was left
  return {bytes, taken, lost || (header.msg_flags & MSG_CTRUNC) != 0, (header.msg_flags & MSG_TRUNC) != 0};
}

bool refuse_descriptors(const file& socket) noexcept { return set_passing(socket, 0); }
void accept_descriptors(const file& socket) noexcept { static_cast<void>(set_passing(socket, 1)); }

bool next_has_descriptors(const file& socket) noexcept {
  msghdr header{};  // without room for descriptors
  return ::recvmsg(socket.number(), &header, MSG_PEEK | MSG_DONTWAIT) >= 0 && (header.msg_flags & MSG_CTRUNC) != 0;
}

result<ucred> other_end(const file& socket) noexcept {
  ucred seen{};
  socklen_t bytes = sizeof seen;
  if (::getsockopt(socket.number(), SOL_SOCKET, SO_PEERCRED, &seen, &bytes) != 0)
    return fail_system("cannot read the credentials of the socket's other end");
  return seen;
}

result<file> other_process(const file& socket) noexcept {
  constexpr int peer_pidfd = 77;  // SO_PEERPIDFD, in headers since Linux 6.5
  int number = -1;
  socklen_t bytes = sizeof number;
  if (::getsockopt(socket.number(), SOL_SOCKET, peer_pidfd, &number, &bytes) == 0) {
    file opened(number);
    if (!opened) return fail_system("no descriptor is left for the process at the socket's other end");
    return opened;
  }
  const int native = errno;
  return fail_errno(native == ENOPROTOOPT ? errc::unsupported : code_for(native), native,
                    "cannot open the process at the socket's other end");
}

result<bool> is_trusted(const file& socket, const ucred& other) noexcept {
  if (other.uid == 0) return true;
  const auto match = match_user(other.uid);
  if (match != user_match::ambiguous) return match == user_match::own;
  // Permission to send a signal to the process proves that it is of the same user: a capability does not reach users
  // that the namespace does not have.
  const auto process = other_process(socket);
  if (!process && process.error() == errc::out_of_resources) return tl::unexpected(process.error());
  return process && ::syscall(SYS_pidfd_send_signal, process->number(), 0, nullptr, 0) == 0;
}

}  // namespace pinfold::os
