// SPDX-License-Identifier: BSD-3-Clause
#include "release/endpoint.hpp"

#include "os/check.hpp"
#include "os/message.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <utility>

namespace pinfold::release {

endpoint endpoint::of(os::file connected) noexcept {
  endpoint made;
  if (const auto other = os::other_end(connected)) {
    made.pid = other->pid;
    made.permitted = os::is_trusted(connected, *other);
    if (made.pid > 0) made.process = os::file(static_cast<int>(::syscall(SYS_pidfd_open, made.pid, 0)));
    if (made.pid > 0 && !made.process) made.no_process = errno;
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
  // The other end closed with something unread. Linux says so once, and before what that end sent.
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

}  // namespace pinfold::release
