// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A process and its child with the same PID: each is process 1 of a PID namespace.
#pragma once

#include "support/processes/pid_namespace.hpp"

#include <csignal>
#include <optional>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace pinfold::testing {

/// Runs `body`, which returns an `int`, in process 1 of a PID namespace. Returns its result, -1 if the process ended
/// before, or nothing where no PID namespace may be made.
template <class Body>
std::optional<int> in_process_1(Body body) {
  child_process process = in_pid_namespace(
      proc_of::parent, [body = std::move(body)](line& home) { return home.send(0) && home.send(body()) ? 0 : 1; });
  if (!process.talk().receive<int>()) return std::nullopt;
  return process.talk().receive<int>().value_or(-1);
}

/// In process 1 of a PID namespace: runs `body` in a child that is process 1 of another one. Returns its result, which
/// is the child's exit status: 0 to 99; 100 if it takes longer than a minute; -1 if there is no such child.
template <class Body>
int in_another_process_1(Body body) {
  if (::getpid() != 1 || ::unshare(CLONE_NEWPID) != 0) return -1;
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGALRM, [](int) { ::_exit(100); });  // without a handler, process 1 gets no signal
    ::alarm(60);
    ::_exit(::getpid() == 1 ? body() : 101);
  }
  int status = 0;
  return child > 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace pinfold::testing
