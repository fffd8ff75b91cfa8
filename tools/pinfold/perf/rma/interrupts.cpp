// SPDX-License-Identifier: BSD-3-Clause
#include "perf/rma/interrupts.hpp"

#include "cli/ignored_signal.hpp"
#include "cli/interrupted_output.hpp"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>

namespace tool {
namespace {

constexpr std::chrono::milliseconds most_for_output{200};
constexpr std::chrono::milliseconds most_for_children{500};
constexpr std::chrono::milliseconds most_in_all{1000};

std::atomic<bool> interrupted{false};

sigset_t interrupts() {
  sigset_t all{};
  ::sigemptyset(&all);
  for (const int one : {SIGINT, SIGTERM, SIGHUP})
    if (!is_ignored(one)) ::sigaddset(&all, one);
  return all;
}

void unblock(int signal) {
  sigset_t only{};
  ::sigemptyset(&only);
  ::sigaddset(&only, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
}

[[noreturn]] void die_of(int signal) {
  ::signal(signal, SIG_DFL);
  unblock(signal);
  ::raise(signal);
  ::_exit(128 + signal);
}

// Lets the children remove files of their own before this process's end would kill them.
void end_children(const std::vector<pid_t>& children, int signal) {
  const auto deadline = std::chrono::steady_clock::now() + most_for_children;
  for (const auto child : children) ::kill(child, signal);
  for (const auto child : children)
    while (::waitpid(child, nullptr, WNOHANG) == 0 && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

void end_at_interrupt(const sigset_t& signals, const std::vector<pid_t>& children) {
  int which = 0;
  while (::sigwait(&signals, &which) != 0) {
  }
  interrupted.store(true);  // before the first child ends
  std::thread([which] {     // a handler may hang, and the output may be stuck
    std::this_thread::sleep_for(most_in_all);
    die_of(which);
  })
      .detach();
  end_children(children, which);
  write_interrupted_output(most_for_output);
  unblock(which);
  ::raise(which);  // runs a provider's handler, on a thread that holds none of its locks; or ends the process
  die_of(which);
}

}  // namespace

void hold_interrupts() {
  const auto all = interrupts();
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  for (const int one : {SIGINT, SIGTERM, SIGHUP})
    if (!is_ignored(one)) ::signal(one, SIG_DFL);
}

void take_interrupts(std::vector<pid_t> children) {
  std::thread([signals = interrupts(), all = std::move(children)] { end_at_interrupt(signals, all); }).detach();
}

// The signal may have come while its thread has not run yet: Ctrl-C goes to all ranks at once.
void end_if_interrupted() {
  sigset_t pending{};
  bool coming = ::sigpending(&pending) == 0;
  const auto all = interrupts();
  const auto is_in = [&](int one) { return ::sigismember(&pending, one) == 1 && ::sigismember(&all, one) == 1; };
  coming = coming && (is_in(SIGINT) || is_in(SIGTERM) || is_in(SIGHUP));
  if (coming || interrupted.load()) std::this_thread::sleep_for(2 * most_in_all);
}

}  // namespace tool
