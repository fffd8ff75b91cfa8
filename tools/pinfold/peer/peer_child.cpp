// SPDX-License-Identifier: BSD-3-Clause
#include "peer/peer_child.hpp"

#include <array>
#include <csignal>
#include <cstdio>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tool {

struct peer_child::state {
  int socket = -1;
  pid_t pid = -1;
};

namespace {

void wait_for(pid_t pid) noexcept {
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
}

[[noreturn]] void run_child(int socket, pid_t parent, const std::function<void(int)>& serve) noexcept {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before the line above.
  if (::getppid() == parent) serve(socket);
  ::_exit(0);
}

}  // namespace

void peer_child::state_closer::operator()(state* ending) const noexcept {
  const std::unique_ptr<state> owned(ending);
  if (owned->socket >= 0) {
    // Closing alone would not do: peers that were forked later hold copies of this end.
    ::shutdown(owned->socket, SHUT_RDWR);
    ::close(owned->socket);
  }
  if (owned->pid > 0) wait_for(owned->pid);
}

pinfold::result<peer_child> peer_child::start(const std::function<void(int socket)>& serve) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return pinfold::fail_errno(pinfold::errc::out_of_resources, errno, "cannot create a socket for a peer");
  }
  peer_child peer(std::unique_ptr<state, state_closer>(new state{ends[0], -1}));
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  peer.state_->pid = ::fork();
  const int failed = errno;
  if (peer.state_->pid == 0) run_child(ends[1], parent, serve);
  ::close(ends[1]);
  if (peer.state_->pid < 0) {
    return pinfold::fail_errno(pinfold::errc::out_of_resources, failed, "cannot fork a peer");
  }
  return peer;
}

void peer_child::kill() noexcept {
  if (state_->pid <= 0) return;
  ::kill(state_->pid, SIGKILL);
  wait_for(state_->pid);
  state_->pid = -1;
}

int peer_child::socket() const noexcept { return state_->socket; }
pid_t peer_child::pid() const noexcept { return state_->pid; }

}  // namespace tool
