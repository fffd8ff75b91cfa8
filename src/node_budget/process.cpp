// SPDX-License-Identifier: BSD-3-Clause
#include "node_budget/process.hpp"

#include "os/check.hpp"
#include "os/file.hpp"
#include "os/proc_of_here.hpp"
#include "os/process_stat.hpp"

#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
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

// Retries: the kernel may be short of memory for a moment.
std::uint64_t own_namespace() noexcept {
  constexpr int most_tries = 4;
  struct stat seen{};
  for (int tries = 0; tries < most_tries; ++tries)
    if (::stat("/proc/self/ns/pid", &seen) == 0) return seen.st_ino;
  return 0;
}

// Returns the PID that a process of this namespace has in /proc, or 0.
pid_t pid_in_proc(pid_t pid) noexcept {
  if (os::proc_is_of_here()) return pid;
  const os::file process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0U)));
  if (!process) return 0;
  std::array<char, 512> text{};
  constexpr std::string_view label = "\nPid:\t";
  const os::proc_path about("/proc/thread-self/fdinfo/", process.number());
  const std::string_view all(text.data(), read_into(about.text(), text.data(), text.size()));
  const auto found = all.find(label);
  pid_t number = 0;
  if (found != std::string_view::npos) std::from_chars(all.data() + found + label.size(), all.end(), number);
  return number;
}

}  // namespace

process_id process_id::here() noexcept {
  const auto self = os::read_own_stat().value_or(os::process_stat{});
  return {static_cast<std::uint64_t>(::getpid()), self.started, self.stack, own_namespace()};
}

bool process_id::known_to_run(std::uint64_t own_namespace) const noexcept {
  if (namespace_inode == 0 || namespace_inode != own_namespace) return false;
  const auto number = static_cast<pid_t>(pid);
  const auto shown = started != 0 ? pid_in_proc(number) : 0;
  const auto seen = shown != 0 ? os::read_process_stat(shown).value_or(os::process_stat{}) : os::process_stat{};
  if (seen.state == 0) return ::kill(number, 0) == 0 || errno == EPERM;
  const bool same_program = seen.stack == stack || seen.stack == 0 || stack == 0;
  return !seen.ended() && seen.started == started && same_program;
}

std::string read_text(const char* path) {
  constexpr std::size_t most = 16384;
  std::string text(most, '\0');
  text.resize(read_into(path, text.data(), text.size()));
  return text;
}

}  // namespace pinfold::node
