// SPDX-License-Identifier: BSD-3-Clause
#include "top/terminal_signals.hpp"

#include "cli/failure.hpp"

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>
#include <utility>

namespace tool::top {
namespace {

constexpr unsigned longest_s = 1;

// The handler reads these.
std::atomic<int> queue{-1};
std::atomic<int> ending{0};
termios modes{};
std::string farewell_text;

void take_default(int signal) noexcept {
  struct sigaction standard{};
  standard.sa_handler = SIG_DFL;
  ::sigaction(signal, &standard, nullptr);
}

void on_signal(int signal) {
  const int kept = errno;
  if (signal == SIGALRM) {
    pollfd output{STDOUT_FILENO, POLLOUT, 0};
    if (::poll(&output, 1, 0) == 1)
      static_cast<void>(::write(STDOUT_FILENO, farewell_text.data(), farewell_text.size()) > 0);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &modes);
    die_of(ending.load(std::memory_order_seq_cst));
  }
  if (ends(signal)) {
    ending.store(signal, std::memory_order_seq_cst);
    ::alarm(longest_s);
  }
  const auto byte = static_cast<unsigned char>(signal);
  static_cast<void>(::write(queue.load(std::memory_order_seq_cst), &byte, 1) == 1);  // a full queue has one to be taken
  errno = kept;
}

}  // namespace

void die_of(int signal) noexcept {
  take_default(signal);
  sigset_t only{};
  ::sigemptyset(&only);
  ::sigaddset(&only, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  ::raise(signal);
  ::_exit(128 + signal);
}

terminal_signals::terminal_signals() {
  if (::tcgetattr(STDIN_FILENO, &modes) != 0 || ::pipe2(ends_.data(), O_CLOEXEC | O_NONBLOCK) != 0)
    throw failure(fmt::format("the terminal cannot be used: {}", strerrordesc_np(errno)));
  queue.store(ends_[1], std::memory_order_seq_cst);
  struct sigaction action{};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  for (std::size_t i = 0; i < queued.size(); ++i) {
    ::sigaction(queued[i], nullptr, &earlier_[i]);
    if (earlier_[i].sa_handler != SIG_IGN || queued[i] == SIGALRM) ::sigaction(queued[i], &action, nullptr);
  }
}

terminal_signals::~terminal_signals() {
  for (std::size_t i = 0; i < queued.size(); ++i) ::sigaction(queued[i], &earlier_[i], nullptr);
  ::alarm(0);
  for (const int end : ends_) ::close(end);
}

void terminal_signals::set_farewell(std::string text) { farewell_text = std::move(text); }

int terminal_signals::next() noexcept {
  unsigned char byte = 0;
  return ::read(ends_[0], &byte, 1) == 1 ? byte : 0;
}

void terminal_signals::stop_process() noexcept {
  struct sigaction handler{};
  ::sigaction(SIGTSTP, nullptr, &handler);
  take_default(SIGTSTP);
  ::raise(SIGTSTP);
  ::sigaction(SIGTSTP, &handler, nullptr);
}

}  // namespace tool::top
