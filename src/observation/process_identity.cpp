// SPDX-License-Identifier: BSD-3-Clause
#include "observation/process_identity.hpp"

#include "os/proc_of_here.hpp"
#include "os/process_stat.hpp"

#include <cerrno>
#include <csignal>
#include <sys/stat.h>

namespace pinfold::observation {

namespace {

// Signal 0 is not sent.
bool has_process(pid_t pid) noexcept { return ::kill(pid, 0) == 0 || errno != ESRCH; }

std::optional<std::uint64_t> start_time_in(const result<os::process_stat>& seen) noexcept {
  return seen && !seen->ended() ? std::optional(seen->started) : std::nullopt;
}

}  // namespace

std::optional<std::uint64_t> start_time_of(pid_t pid) noexcept { return start_time_in(os::read_process_stat(pid)); }

std::optional<std::uint64_t> own_start_time() noexcept { return start_time_in(os::read_own_stat()); }

// A process that /proc hides (hidepid, see proc(5)) has a number and no files.
process_life life_of(pid_t pid, std::optional<std::uint64_t> start_time) noexcept {
  if (pid <= 0 || !has_process(pid)) return process_life::ended;
  if (!os::proc_is_of_here()) return process_life::unknown;
  const auto seen = os::read_process_stat(pid);
  if (!seen) return process_life::unknown;
  return seen->ended() || seen->started != start_time.value_or(seen->started) ? process_life::ended
                                                                              : process_life::runs;
}

std::uint64_t pid_namespace() noexcept {
  struct stat seen{};
  return ::stat("/proc/self/ns/pid", &seen) == 0 ? seen.st_ino : 0;
}

}  // namespace pinfold::observation
