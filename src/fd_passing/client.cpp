// SPDX-License-Identifier: BSD-3-Clause
#include "fd_passing/client.hpp"

#include "fd_passing/process.hpp"
#include "os/background_closer.hpp"
#include "os/process_stat.hpp"

#include <algorithm>
#include <array>
#include <poll.h>
#include <sys/stat.h>
#include <sys/time.h>

namespace pinfold::fd_passing {

namespace {

using std::chrono::steady_clock;

constexpr auto late_text = "the exporter did not answer in time";

/// Connects. While too many connections wait at the socket, waits for room until the deadline, however many signals
/// arrive meanwhile. Returns 0 or an `errno` value, EAGAIN at the deadline.
int connect_by(steady_clock::time_point deadline, const file& socket, const socket_address& to) noexcept {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::microseconds>(deadline - steady_clock::now()).count();
    if (left <= 0) return EAGAIN;
    const timeval limit{.tv_sec = left / 1'000'000, .tv_usec = left % 1'000'000};
    ::setsockopt(socket.number(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (::connect(socket.number(), reinterpret_cast<const sockaddr*>(&to.name), to.bytes) == 0) return 0;
    if (errno != EINTR) return errno;
  }
}

/// Waits for a reply, or for the end of the process.
result<void> wait_for_reply(const file& socket, const file& process) noexcept {
  const auto deadline = steady_clock::now() + answer_timeout;
  std::array<pollfd, 2> watched{
      {{.fd = socket.number(), .events = POLLIN, .revents = 0},
       {.fd = process.still_there() ? process.number() : -1, .events = POLLIN, .revents = 0}}};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now());
    if (left.count() <= 0) return fail_errno(errc::timed_out, ETIMEDOUT, late_text);
    const int ready = ::poll(watched.data(), watched.size(), static_cast<int>(left.count()));
    if (ready < 0 && errno != EINTR) {  // no memory, or a descriptor limit below the number of open descriptors
      return fail_errno(errc::out_of_resources, errno, "cannot wait for the exporter's answer");
    }
    if (ready <= 0) continue;
    if (watched[0].revents != 0) return {};  // counts even if the exporter ended right after it sent the reply
    return fail_errno(errc::peer_gone, ESRCH, "the exporting process ended before it answered");
  }
}

/// After `out_of_resources` and `already_mapped`, a cache closes mappings of this process, which helps no exporter.
error failure_in(const reply& failed_reply) noexcept {
  const auto code = std::min(failed_reply.code, errc::closed);  // a newer exporter may have more codes
  if (code == errc::out_of_resources)
    return {errc::driver_error, failed_reply.kind, failed_reply.native,
            "the exporter is out of resources to export the memory"};
  return {code == errc::already_mapped ? errc::driver_error : code, failed_reply.kind, failed_reply.native,
          "the exporter's driver refused to export the memory"};
}

result<file> accepted(received_reply got, std::uint64_t serial) noexcept {
  if (got.what.serial != serial) return fail(errc::closed, "the exporter answered a different request");
  switch (got.what.state) {
    case reply_state::granted:
      if (got.descriptor && !got.cut_off) return std::move(got.descriptor);
      if (!got.cut_off) break;
      return fail_errno(errc::out_of_resources, EMFILE,
                        "this process has too many open files to receive the exporter's descriptor");
    case reply_state::freed: return fail(errc::stale_handle, "the exporter has freed this buffer");
    case reply_state::refused:
      return fail_errno(errc::not_permitted, got.what.native, "the exporter serves only its own user and root");
    case reply_state::failed: return tl::unexpected(failure_in(got.what));
    case reply_state::exhausted:
      return fail_errno(errc::driver_error, got.what.native, "the exporter is out of resources to send its descriptor");
  }
  return fail(errc::closed, "the exporter's answer is malformed");
}

/// Whether the process is in the user namespace of this one. The owner of another one may also own a PID namespace, and
/// give its processes the numbers that he chooses (clone3(2), `set_tid`).
bool is_of_this_user_namespace(pid_t process) noexcept {
  struct stat own{};
  struct stat other{};
  return ::stat("/proc/self/ns/user", &own) == 0 && ::stat(os::proc_path(process, "/ns/user").text(), &other) == 0 &&
         own.st_dev == other.st_dev && own.st_ino == other.st_ino;
}

/// Whether the process is the exporter's, which may have another number in its own PID namespace.
bool is_process(pid_t seen, const exporter_id& from) noexcept {
  const auto started_at = [&](pid_t process) {
    const auto started = start_time_of(process);
    return started && *started == from.start_time;
  };
  if (started_at(from.pid)) return seen == from.pid;
  return started_at(seen) && own_number_of(seen) == from.pid && is_of_this_user_namespace(seen);
}

/// Fails unless the socket's owner is this user or root; root also opens the memory of another user's process, but from
/// that process only. Any process can take an abstract name once its owner has ended.
result<void> check_owner(const file& socket, const exporter_id& from) noexcept {
  const auto exporter = os::other_end(socket);
  if (!exporter) return tl::unexpected(exporter.error());
  const auto trusted = os::is_trusted(socket, *exporter);
  if (!trusted) return tl::unexpected(trusted.error());
  if (*trusted) return {};
  if (::geteuid() == 0 && is_process(exporter->pid, from)) return {};
  return fail_errno(errc::not_permitted, EPERM, "the exporter's socket belongs to another user");
}

}  // namespace

result<file> connect_to(const exporter_id& from, socket_purpose purpose, std::chrono::milliseconds patience) noexcept {
  file socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket) return os::fail_system("cannot create a socket");
  const os::background_closer closer(os::refuse_descriptors(socket));  // until it is known whose socket it is
  if (!closer.has_room())
    return fail_errno(errc::out_of_resources, EAGAIN, "too many sockets of other users wait to be closed");
  const int native = connect_by(steady_clock::now() + patience, socket, address_of(from.exporter, purpose));
  if (native == ECONNREFUSED) return fail_errno(errc::closed, native, "no process serves this exporter");
  if (native == EAGAIN) return fail_errno(errc::timed_out, native, late_text);
  if (native != 0) return fail_errno(os::code_for(native), native, "cannot connect to the exporter");
  if (auto owned = check_owner(socket, from); !owned) {
    closer.close(std::move(socket));
    return tl::unexpected(owned.error());
  }
  if (purpose == socket_purpose::descriptors) os::accept_descriptors(socket);
  return socket;
}

result<file> ask(const file& socket, const file& process, std::uint64_t serial) noexcept {
  const request what{wire_magic, serial};
  // If the send fails, the read below shows whether the exporter hung up.
  if (::send(socket.number(), &what, sizeof what, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
    return fail_errno(errc::closed, errno, "the connection to the exporter broke");
  }
  if (auto ready = wait_for_reply(socket, process); !ready) return tl::unexpected(ready.error());
  auto got = receive_reply(socket);
  if (!got) return tl::unexpected(got.error());
  return accepted(std::move(*got), serial);
}

}  // namespace pinfold::fd_passing
