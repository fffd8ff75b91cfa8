// SPDX-License-Identifier: BSD-3-Clause
#include "release/endpoint.hpp"

#include "os/check.hpp"
#include "os/message.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <utility>

namespace pinfold::release {

namespace {

bool is_hung_up(const os::file& socket) noexcept {
  pollfd one{.fd = socket.number(), .events = 0, .revents = 0};
  return ::poll(&one, 1, 0) > 0 && (one.revents & POLLHUP) != 0;
}

/// Before Linux 6.5: opens the process by its number, which another process may have by now. While the connection is
/// not hung up, the process that made it runs, or a forked child of it has its socket. Sets `native` if there is no
/// process.
os::file process_by_number(const os::file& socket, pid_t number, int& native) noexcept {
  os::file opened(static_cast<int>(::syscall(SYS_pidfd_open, number, 0)));
  if (!opened) native = errno;
  if (opened && is_hung_up(socket)) native = ENOTCONN;
  return native == 0 ? std::move(opened) : os::file();
}

os::file process_behind(const os::file& socket, pid_t number, int& native) noexcept {
  auto opened = os::other_process(socket);
  if (opened) return std::move(*opened);
  if (opened.error() == errc::unsupported) return process_by_number(socket, number, native);
  const bool ended = opened.error().native == EINVAL || opened.error().native == ENODATA;  // in some versions
  native = ended ? ESRCH : opened.error().native;
  return {};
}

}  // namespace

endpoint endpoint::of(os::file connected) noexcept {
  endpoint made;
  if (const auto other = os::other_end(connected)) {
    made.pid = other->pid;
    made.permitted = os::is_trusted(connected, *other).value_or(false);
    if (made.pid > 0) made.process = process_behind(connected, made.pid, made.no_process);
  }
  made.socket = std::move(connected);
  return made;
}

endpoint::sent endpoint::send(const release_message& message) const noexcept {
  if (!socket.still_there()) return sent::broken;  // the number may belong to a file of the program
  const auto bytes = ::send(socket.number(), &message, sizeof message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (bytes == sizeof message) return sent::done;
  return bytes < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOBUFS || errno == ENOMEM) ? sent::full
                                                                                                 : sent::broken;
}

endpoint::received endpoint::receive(release_message& into) const noexcept {
  if (!socket.still_there()) return received::broken;
  std::array<std::byte, sizeof(release_message) + 1> bytes{};
  const auto receive_one = [&] { return ::recv(socket.number(), bytes.data(), bytes.size(), MSG_DONTWAIT); };
  auto got = receive_one();
  // The other end closed with something unread. Linux reports that once, before the messages of that end.
  if (got < 0 && errno == ECONNRESET) got = receive_one();
  if (got < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOMEM)) return received::none;
  if (got <= 0) return received::broken;
  const auto read = read_release_message({bytes.data(), static_cast<std::size_t>(got)});
  if (!read) return received::broken;
  into = *read;
  return received::message;
}

bool endpoint::process_ended() const noexcept {
  if (!process) return false;
  PINFOLD_ASSERT(pid > 0, "a process that can be seen has an id");
  if (process.still_there()) return os::readable_within(process, std::chrono::milliseconds{0});
  return ::kill(pid, 0) != 0 && errno == ESRCH;  // the program has closed the pidfd
}

void endpoint::hang_up() const noexcept {
  if (socket.still_there()) ::shutdown(socket.number(), SHUT_RDWR);
}

}  // namespace pinfold::release
