// SPDX-License-Identifier: BSD-3-Clause
#include "fd_passing/reach.hpp"

#include "fd_passing/process.hpp"
#include "fd_passing/wire.hpp"
#include "os/own_user.hpp"

#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <memory>
#include <sys/socket.h>

namespace pinfold::fd_passing {

namespace {

struct close_stream {
  void operator()(std::FILE* open) const noexcept { std::fclose(open); }
};
using stream = std::unique_ptr<std::FILE, close_stream>;

/// Calls `use` with each line of the file until it returns true. Returns whether it did. A part of a line that is
/// longer than the buffer counts as a line.
template <class Use>
result<bool> any_line(const char* path, Use&& use) noexcept {
  const stream source(std::fopen(path, "re"));
  if (!source) return os::fail_system("cannot read the system's information about the exporter");
  char line[512];
  while (std::fgets(line, sizeof line, source.get()) != nullptr) {
    if (use(static_cast<const char*>(line))) return true;
  }
  return false;
}

/// Whether a socket with the exporter's name listens in this network namespace. The exporter sees no connection: the
/// kernel looks for the socket before it refuses to connect one end of a pair. The list in /proc/net/unix proves
/// nothing, as the name of another user's socket may contain a line.
result<bool> serves(std::uint64_t exporter) noexcept {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0)
    return os::fail_system("cannot create sockets to look for the exporter's");
  const file here(ends[0]);
  const file there(ends[1]);
  if (!here || !there) return os::fail_system("no descriptor is left to look for the exporter's socket");
  const auto at = address_of(exporter);
  const int done = ::connect(here.number(), reinterpret_cast<const sockaddr*>(&at.name), at.bytes);
  if (done == 0 || errno == EISCONN || errno == EAGAIN) return true;  // EAGAIN: too many connections wait there
  if (errno == ECONNREFUSED) return false;
  return os::fail_system("cannot look for the exporter's socket");
}

/// Whether the exporter's server answers this process: it serves its own user and root, and this process trusts no
/// other user's socket. True if the system does not show the exporter's user.
bool serves_this_user(std::int32_t process) noexcept {
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%d/status", process);
  unsigned own = 0;
  unsigned effective = 0;
  const auto found =
      any_line(path, [&](const char* line) { return std::sscanf(line, "Uid: %u %u", &own, &effective) == 2; });
  if (!found || !*found) return true;
  return ::geteuid() == 0 || os::match_user(effective) != os::user_match::other;
}

/// Requests a descriptor that no process has: the kernel checks the permission before the number.
result<void> may_take_descriptors(const file& process) noexcept {
  const auto taken = duplicate_from(process, INT_MAX);
  if (taken || taken.error() == errc::stale_handle) return {};
  return tl::unexpected(taken.error());
}

result<void> socket_answers(const result<file>& process, const exporter_id& of) noexcept {
  const auto listens = serves(of.exporter);
  if (!listens) return tl::unexpected(listens.error());
  if (!*listens && !process && process.error() == errc::peer_gone) return tl::unexpected(process.error());
  if (!*listens) return fail(errc::unsupported, "the exporter does not serve its buffers over a socket");
  if (process && !serves_this_user(of.pid))
    return fail_errno(errc::not_permitted, EPERM, "the exporter serves only its own user and root");
  return {};
}

}  // namespace

result<void> can_fetch(transport via, const exporter_id& of) noexcept {
  const auto process = open_process(of);
  if (process && has_ended(*process)) return fail_errno(errc::peer_gone, ESRCH, "the exporting process has ended");
  if (via == transport::scm) return socket_answers(process, of);
  const auto direct = process ? may_take_descriptors(*process) : result<void>(tl::unexpected(process.error()));
  if (direct || via == transport::pidfd) return direct;
  if (direct.error() != errc::not_permitted && direct.error() != errc::unsupported) return direct;
  const auto served = socket_answers(process, of);
  // If the exporter does not serve, the error of `pidfd` gives the better advice.
  return !served && served.error() == errc::unsupported ? direct : served;
}

}  // namespace pinfold::fd_passing
