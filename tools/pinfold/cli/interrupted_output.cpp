// SPDX-License-Identifier: BSD-3-Clause
#include "cli/interrupted_output.hpp"

#include "cli/ignored_signal.hpp"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <list>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <utility>

namespace tool {
namespace {

constexpr unsigned longest_s = 1;

enum class stage { measuring, printing, printed };

// The handler reads these; it may run on any thread.
std::atomic<const std::string*> text{nullptr};
std::atomic<pid_t> running{0};
std::atomic<stage> now{stage::measuring};
std::atomic<int> received{0};
std::atomic<pid_t> owner{0};
std::atomic<bool> terminal{false};

void write_all(int descriptor, std::string_view rest) noexcept {
  while (!rest.empty()) {
    const auto written = ::write(descriptor, rest.data(), rest.size());
    if (written > 0) rest.remove_prefix(static_cast<std::size_t>(written));
    if (written < 0 && errno != EINTR) return;
  }
}

[[noreturn]] void die_of(int signal) noexcept {
  struct sigaction standard{};
  standard.sa_handler = SIG_DFL;
  ::sigaction(signal, &standard, nullptr);
  sigset_t only{};
  ::sigemptyset(&only);
  ::sigaddset(&only, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
  ::raise(signal);
  ::_exit(128 + signal);
}

void on_alarm(int /*signal*/) { die_of(received.load(std::memory_order_seq_cst)); }

// Calls only functions that are safe in a handler.
void on_interrupt(int signal) {
  if (::getpid() != owner.load(std::memory_order_seq_cst)) die_of(signal);  // a forked child
  if (received.exchange(signal, std::memory_order_seq_cst) != 0) die_of(signal);
  ::alarm(longest_s);  // the output may be stuck
  if (const auto program = running.load(std::memory_order_seq_cst); program > 0) ::kill(program, SIGKILL);
  if (now.load(std::memory_order_seq_cst) == stage::printing) return;
  if (terminal.load(std::memory_order_seq_cst)) write_all(STDERR_FILENO, wipe_line);
  if (const auto* const results = text.load(std::memory_order_seq_cst);
      results != nullptr && now.load(std::memory_order_seq_cst) == stage::measuring)
    write_all(STDOUT_FILENO, *results);
  die_of(signal);
}

void install(int signal, void (*handler)(int)) noexcept {
  struct sigaction action{};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(signal, &action, nullptr);
}

}  // namespace

void handle_interrupts() {
  owner.store(::getpid(), std::memory_order_seq_cst);
  terminal.store(::isatty(STDERR_FILENO) == 1, std::memory_order_seq_cst);
  install(SIGALRM, on_alarm);
  for (const int one : {SIGINT, SIGTERM, SIGHUP})
    if (!is_ignored(one)) install(one, on_interrupt);
}

void print_at_interrupt(std::string results) {
  static std::list<std::string> all;  // a handler may be writing an earlier one
  text.store(&all.emplace_back(std::move(results)), std::memory_order_seq_cst);
}

void kill_at_interrupt(pid_t program) noexcept { running.store(program, std::memory_order_seq_cst); }

final_output::final_output() noexcept { now.store(stage::printing, std::memory_order_seq_cst); }

final_output::~final_output() {
  std::fflush(stdout);
  now.store(stage::printed, std::memory_order_seq_cst);
  if (const int signal = received.load(std::memory_order_seq_cst); signal != 0) die_of(signal);
}

void write_interrupted_output(std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (now.load(std::memory_order_seq_cst) == stage::printing && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (::isatty(STDERR_FILENO) == 1) write_all(STDERR_FILENO, wipe_line);
  const auto* const results = text.load(std::memory_order_seq_cst);
  if (results != nullptr && now.load(std::memory_order_seq_cst) == stage::measuring) write_all(STDOUT_FILENO, *results);
}

}  // namespace tool
