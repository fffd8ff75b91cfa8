// SPDX-License-Identifier: BSD-3-Clause
#include "observation/process_identity.hpp"

#include "os/file.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <fcntl.h>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

namespace pinfold::observation {

std::optional<std::uint64_t> start_time_of(pid_t pid) noexcept {
  std::array<char, 64> path{};
  std::snprintf(path.data(), path.size(), "/proc/%d/stat", pid);
  const os::file stat(::open(path.data(), O_RDONLY | O_CLOEXEC));
  std::array<char, 1024> buffer{};
  const auto got = stat ? ::read(stat.number(), buffer.data(), buffer.size()) : -1;
  if (got <= 0) return std::nullopt;
  std::string_view rest(buffer.data(), static_cast<std::size_t>(got));
  const auto name_end = rest.rfind(')');  // the name may contain blanks and parentheses
  if (name_end == std::string_view::npos) return std::nullopt;
  rest.remove_prefix(name_end + 1);
  constexpr int first_field = 3;  // the state
  constexpr int threads = 20;     // a main thread that has ended is a zombie, too, while others run
  constexpr int wanted = 22;
  bool zombie = false;
  for (int field = first_field; field <= wanted; ++field) {
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    if (field == first_field) zombie = rest.starts_with('Z') || rest.starts_with('X');
    if (field == threads && zombie && (rest.starts_with("0 ") || rest.starts_with("1 "))) return std::nullopt;
    if (field < wanted) rest.remove_prefix(std::min(rest.find(' '), rest.size()));
  }
  std::uint64_t time = 0;
  const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), time);
  return parsed.ec == std::errc{} ? std::optional(time) : std::nullopt;
}

std::uint64_t pid_namespace() noexcept {
  struct stat seen{};
  return ::stat("/proc/self/ns/pid", &seen) == 0 ? seen.st_ino : 0;
}

}  // namespace pinfold::observation
