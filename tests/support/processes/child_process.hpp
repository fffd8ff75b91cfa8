// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A forked process that a test talks with over a socket pair.
///
/// Make one before the test has threads of its own: the child runs ordinary code.
#pragma once

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <type_traits>
#include <unistd.h>
#include <utility>

namespace pinfold::testing {

/// One end of a conversation: values of trivially copyable types, in order.
class line {
 public:
  explicit line(int owned) noexcept : socket_(owned) {}
  line(line&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}
  line& operator=(line&&) = delete;
  ~line() { hang_up(); }

  [[nodiscard]] int number() const noexcept { return socket_; }

  void hang_up() noexcept {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }

  /// Returns false when the other end is gone.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  bool send(const T& value) noexcept {
    return ::send(socket_, &value, sizeof value, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof value);
  }

  /// Waits for a value. Returns nothing when the other end is gone.
  template <class T>
    requires std::is_trivially_copyable_v<T>
  std::optional<T> receive() noexcept {
    T value{};
    ssize_t got = 0;
    do {
      got = ::recv(socket_, &value, sizeof value, 0);
    } while (got < 0 && errno == EINTR);
    if (got != static_cast<ssize_t>(sizeof value)) return std::nullopt;
    return value;
  }

 private:
  int socket_;
};

/// A child that runs `body`, whose result is its exit status. It ends with the test at the latest.
class child_process {
 public:
  template <class Body>
    requires std::is_invocable_r_v<int, Body, line&>
  explicit child_process(Body&& body) : child_process(make_pair()) {
    pid_ = ::fork();
    if (pid_ < 0) throw std::runtime_error("cannot fork");
    if (pid_ != 0) {
      theirs_.hang_up();
      return;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ours_.hang_up();
    std::_Exit(body(theirs_));
  }
  child_process(const child_process&) = delete;
  child_process& operator=(const child_process&) = delete;
  ~child_process() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    reap();
  }

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  [[nodiscard]] line& talk() noexcept { return ours_; }

  /// Sends a value, and returns the child's answer. Throws `std::runtime_error` when the child is gone.
  template <class Answer, class Order>
  Answer ask(const Order& order) {
    if (!ours_.send(order)) throw std::runtime_error("the child does not listen");
    const auto got = ours_.receive<Answer>();
    if (!got) throw std::runtime_error("the child does not answer");
    return *got;
  }

  /// Stops the child; returns when all of its threads stand still.
  void stop() noexcept {
    ::kill(pid_, SIGSTOP);
    siginfo_t seen{};
    while (::waitid(P_PID, static_cast<id_t>(pid_), &seen, WSTOPPED) < 0 && errno == EINTR) {
    }
  }
  void go_on() noexcept { ::kill(pid_, SIGCONT); }

  /// Returns whether the child has not ended. Does not reap it.
  [[nodiscard]] bool runs() const noexcept {
    siginfo_t seen{};
    return ::waitid(P_PID, static_cast<id_t>(pid_), &seen, WEXITED | WNOHANG | WNOWAIT) == 0 && seen.si_pid == 0;
  }

  /// Kills the child and waits until it is dead, but does not reap it: its number stays taken (a zombie).
  void kill() noexcept {
    ::kill(pid_, SIGKILL);
    siginfo_t seen{};
    while (::waitid(P_PID, static_cast<id_t>(pid_), &seen, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
    }
  }

  /// Waits for the child's end. Returns its exit status, or minus the signal that killed it.
  int reap() noexcept {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }

  /// Tells the child that no more values will come, and waits for its end.
  int finish() noexcept {
    ours_.hang_up();
    return reap();
  }

 private:
  explicit child_process(std::array<int, 2> ends) noexcept : ours_(ends[0]), theirs_(ends[1]) {}

  static std::array<int, 2> make_pair() {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
      throw std::runtime_error("cannot make a socket pair");
    }
    return ends;
  }

  line ours_;
  line theirs_;
  pid_t pid_ = -1;
};

}  // namespace pinfold::testing
