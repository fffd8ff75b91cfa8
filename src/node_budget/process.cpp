// SPDX-License-Identifier: BSD-3-Clause
#include "node_budget/process.hpp"

#include "os/check.hpp"
#include "os/file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <string_view>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace pinfold::node {

namespace {

std::size_t read_into(const char* path, char* text, std::size_t room) noexcept {
  const os::file from(::open(path, O_RDONLY | O_CLOEXEC));
  if (!from) return 0;
  std::size_t size = 0;
  while (size < room) {
    const auto got = ::read(from.number(), text + size, room - size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    PINFOLD_ASSERT(static_cast<std::size_t>(got) <= room - size, "a read fills no more than the room");
    size += static_cast<std::size_t>(got);
  }
  return size;
}

struct seen_process {
  char state = 0;  ///< 0: not seen
  std::uint64_t threads = 0;
  std::uint64_t started = 0;
  std::uint64_t stack = 0;
};

// Returns the text after so many spaces.
std::string_view after_spaces(std::string_view text, int spaces) noexcept {
  for (; spaces > 0 && !text.empty(); --spaces) text.remove_prefix(std::min(text.find(' '), text.size() - 1) + 1);
  return text;
}

std::uint64_t number_at(std::string_view text) noexcept {
  std::uint64_t number = 0;
  std::from_chars(text.begin(), text.end(), number);
  return number;
}

// proc(5): after the name in parentheses come the state, 17 fields on the number of threads, 2 fields on the start
// time, and 6 fields on the stack's start, which is 0 if the caller may not know it.
seen_process look_at(const char* path) noexcept {
  std::array<char, 1024> text{};
  const std::string_view all(text.data(), read_into(path, text.data(), text.size() - 1));
  const auto end_of_name = all.rfind(')');
  if (end_of_name == std::string_view::npos) return {};
  const auto state = after_spaces(all.substr(end_of_name), 1);
  const auto threads = after_spaces(state, 17);
  const auto started = after_spaces(threads, 2);
  const auto stack = after_spaces(started, 6);
  if (stack.empty()) return {};
  return {state.front(), number_at(threads), number_at(started), number_at(stack)};
}

// The kernel may be short of memory for a moment.
std::uint64_t own_namespace() noexcept {
  constexpr int most_tries = 4;
  struct stat seen{};
  for (int tries = 0; tries < most_tries; ++tries)
    if (::stat("/proc/self/ns/pid", &seen) == 0) return seen.st_ino;
  return 0;
}

// Whether /proc shows the PID namespace of this process: a new namespace may still have its parent's.
bool proc_is_of_here() noexcept {
  std::array<char, 24> text{};
  const auto size = ::readlink("/proc/self", text.data(), text.size());
  return size > 0 && number_at({text.data(), static_cast<std::size_t>(size)}) == static_cast<std::uint64_t>(::getpid());
}

// Returns the PID that a process of this namespace has in /proc, or 0.
std::uint64_t pid_in_proc(std::uint64_t pid) noexcept {
  if (proc_is_of_here()) return pid;
  const os::file process(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(pid), 0U)));
  if (!process) return 0;
  std::array<char, 40> path{};
  std::array<char, 512> text{};
  std::snprintf(path.data(), path.size(), "/proc/self/fdinfo/%d", process.number());
  constexpr std::string_view label = "\nPid:\t";
  const std::string_view all(text.data(), read_into(path.data(), text.data(), text.size()));
  const auto found = all.find(label);
  return found == std::string_view::npos ? 0 : number_at(all.substr(found + label.size()));
}

seen_process look_at(std::uint64_t pid) noexcept {
  const auto shown = pid_in_proc(pid);
  if (shown == 0) return {};
  std::array<char, 32> path{};
  std::snprintf(path.data(), path.size(), "/proc/%llu/stat", static_cast<unsigned long long>(shown));
  return look_at(path.data());
}

}  // namespace

process_id process_id::here() noexcept {
  const auto self = look_at("/proc/self/stat");
  return {static_cast<std::uint64_t>(::getpid()), self.started, self.stack, own_namespace()};
}

bool process_id::known_to_run(std::uint64_t own_namespace) const noexcept {
  if (namespace_inode == 0 || namespace_inode != own_namespace) return false;
  const auto seen = started != 0 ? look_at(pid) : seen_process{};
  if (seen.state == 0) return ::kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM;
  const bool same_program = seen.stack == stack || seen.stack == 0 || stack == 0;
  // A main thread that has ended is a zombie while others run.
  const bool ended = (seen.state == 'Z' || seen.state == 'X') && seen.threads <= 1;
  return !ended && seen.started == started && same_program;
}

std::string read_text(const char* path) {
  constexpr std::size_t most = 16384;
  std::string text(most, '\0');
  text.resize(read_into(path, text.data(), text.size()));
  return text;
}

}  // namespace pinfold::node
