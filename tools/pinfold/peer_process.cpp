// SPDX-License-Identifier: BSD-3-Clause
#include "peer_process.hpp"

#include "failure.hpp"
#include "peer_protocol.hpp"

#include <array>
#include <csignal>
#include <cstdio>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tool {

struct peer_process::state {
  pinfold::peer_id id;
  int socket = -1;
  pid_t pid = -1;
  std::uint64_t generation = 0;  // of the messages, so that no two have the same content
};

namespace {

pinfold::result<peer_reply> exchange(int socket, const peer_request& request) {
  peer_reply reply{};
  if (!send_packet(socket, request) || !receive_packet(socket, reply)) {
    return pinfold::fail(pinfold::errc::peer_gone, "the peer does not answer");
  }
  if (!reply.ok) return tl::unexpected(reply.failure);
  return reply;
}

void wait_for(pid_t pid) noexcept {
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

[[noreturn]] void run_child(int socket, pid_t parent, const peer_options& options) noexcept {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before the line above.
  if (::getppid() == parent) serve_as_peer(socket, options);
  ::_exit(0);
}

pinfold::result<void> wait_until_ready(int socket) {
  peer_reply reply{};
  if (!receive_packet(socket, reply)) return pinfold::fail(pinfold::errc::peer_gone, "the peer ended at its start");
  if (!reply.ok) return tl::unexpected(reply.failure);
  return {};
}

}  // namespace

void peer_process::state_closer::operator()(state* ending) const noexcept {
  const std::unique_ptr<state> owned(ending);
  if (owned->socket >= 0) {
    // Not close alone: peers that were forked later hold copies of this end.
    ::shutdown(owned->socket, SHUT_RDWR);
    ::close(owned->socket);
  }
  if (owned->pid > 0) wait_for(owned->pid);
}

pinfold::result<peer_process> peer_process::start(pinfold::peer_id id, const peer_options& options) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return pinfold::fail_errno(pinfold::errc::out_of_resources, errno, "cannot make a socket for a peer");
  }
  peer_process peer(std::unique_ptr<state, state_closer>(new state{id, ends[0], -1, 0}));
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  peer.state_->pid = ::fork();
  const int failed = errno;
  if (peer.state_->pid == 0) run_child(ends[1], parent, options);
  ::close(ends[1]);
  if (peer.state_->pid < 0) {
    return pinfold::fail_errno(pinfold::errc::out_of_resources, failed, "cannot fork a peer");
  }
  const auto ready = wait_until_ready(ends[0]);
  if (!ready) return tl::unexpected(ready.error());
  return peer;
}

pinfold::result<message> peer_process::provide(std::uint32_t buffer, std::size_t bytes, std::uint64_t where) {
  const auto seed = seed_for(state_->id.value, buffer, state_->generation++);
  const auto reply = exchange(state_->socket, {peer_verb::allocate, buffer, bytes, where, seed});
  if (!reply) return tl::unexpected(reply.error());
  return message{state_->id, reply->handle, bytes, seed};
}

pinfold::result<void> peer_process::free(std::uint32_t buffer) {
  const auto reply = exchange(state_->socket, {peer_verb::free, buffer, 0, 0, 0});
  if (!reply) return tl::unexpected(reply.error());
  return {};
}

void peer_process::kill() noexcept {
  if (state_->pid <= 0) return;
  ::kill(state_->pid, SIGKILL);
  wait_for(state_->pid);
  state_->pid = -1;
}

pinfold::peer_id peer_process::id() const noexcept { return state_->id; }
pid_t peer_process::pid() const noexcept { return state_->pid; }

std::vector<peer_process> start_peers(std::size_t count, const peer_options& options) {
  std::vector<peer_process> peers;
  for (std::size_t i = 0; i < count; ++i) {
    peers.push_back(need(peer_process::start({i}, options), "cannot start a peer"));
  }
  return peers;
}

}  // namespace tool
