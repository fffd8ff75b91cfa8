// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A process in a PID namespace of its own, where its PID is 1.
#pragma once

#include "support/processes/child_process.hpp"

#include <cstdint>
#include <fcntl.h>
#include <sched.h>
#include <string>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace pinfold::testing {

/// What /proc a process in a new PID namespace sees.
enum class proc_of : std::uint8_t { parent, itself };

inline bool write_text(const char* path, const std::string& text) noexcept {
  const int file = ::open(path, O_WRONLY | O_CLOEXEC);
  const bool written = file >= 0 && ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (file >= 0) ::close(file);
  return written;
}

/// Makes the caller's next children live in a new PID namespace, and the caller in a new mount namespace; in a new user
/// namespace with the same user, too, unless that is not needed. Returns false if that is not permitted.
inline bool unshare_pids() {
  const auto user = std::to_string(::geteuid());
  if (::unshare(CLONE_NEWPID | CLONE_NEWNS) == 0) return true;
  return ::unshare(CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS) == 0 &&
         write_text("/proc/self/uid_map", user + ' ' + user + " 1");
}

inline bool mount_own_proc() noexcept {
  return ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         ::mount("proc", "/proc", "proc", 0, nullptr) == 0;
}

/// Runs `body` as child_process does, in a new PID namespace. The child hangs up at once where that is not permitted.
/// The process that `kill` kills is the parent of the one that runs `body`, which dies a moment later.
template <class Body>
child_process in_pid_namespace(proc_of shown, Body body) {
  return child_process([shown, body = std::move(body)](line& home) {
    if (!unshare_pids()) return 1;
    const pid_t inner = ::fork();
    if (inner == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (shown == proc_of::itself && !mount_own_proc()) return 1;
      return body(home);
    }
    int status = 0;
    return inner > 0 && ::waitpid(inner, &status, 0) == inner && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  });
}

}  // namespace pinfold::testing
