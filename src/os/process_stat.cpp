// SPDX-License-Identifier: BSD-3-Clause
#include "os/process_stat.hpp"

#include "os/check.hpp"
#include "os/file.hpp"

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>

namespace pinfold::os {

namespace {

constexpr int first_field = 3;  // behind the name
constexpr int last_field = 28;

/// Reads a field; returns whether it has its form.
bool read_field(int field, std::string_view text, process_stat& into) noexcept {
  if (text.empty()) return false;
  const auto number = [text](std::uint64_t& to) {
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), to);
    return parsed.ec == std::errc{} && parsed.ptr == text.data() + text.size();
  };
  switch (field) {
    case first_field: into.state = text.front(); return true;
    case 9: return number(into.flags);
    case 20: return number(into.threads);
    case 22: return number(into.started);
    case last_field: return number(into.stack);
    default: return true;
  }
}

result<process_stat> read_stat(const char* path) noexcept {
  const file stat(::open(path, O_RDONLY | O_CLOEXEC));
  if (!stat) return fail_system("cannot open /proc/<pid>/stat");
  std::array<char, 1024> line{};
  ssize_t got = -1;
  do got = ::read(stat.number(), line.data(), line.size());
  while (got < 0 && errno == EINTR);
  if (got < 0) return fail_system("cannot read /proc/<pid>/stat");
  const auto found = parse_process_stat({line.data(), static_cast<std::size_t>(got)});
  if (!found) return fail(errc::driver_error, "cannot parse /proc/<pid>/stat");
  return *found;
}

}  // namespace

std::optional<process_stat> parse_process_stat(std::string_view line) noexcept {
  const std::size_t name_end = line.rfind(')');  // the name may have blanks and parentheses itself
  if (name_end == std::string_view::npos) return std::nullopt;
  line.remove_prefix(name_end + 1);
  process_stat found;
  for (int field = first_field; field <= last_field; ++field) {  // each with a blank before and behind it
    const std::size_t blank = line.find(' ', 1);
    if (line.empty() || line.front() != ' ' || blank == std::string_view::npos) return std::nullopt;
    if (!read_field(field, line.substr(1, blank - 1), found)) return std::nullopt;
    line.remove_prefix(blank);
  }
  return found;
}

result<process_stat> read_process_stat(pid_t process) noexcept { return read_stat(proc_path(process, "/stat").text()); }
result<process_stat> read_own_stat() noexcept { return read_stat("/proc/self/stat"); }

proc_path::proc_path(pid_t process, std::string_view file, int number) noexcept {
  append("/proc/");
  append(process);
  append(file);
  if (number >= 0) append(number);
}

proc_path::proc_path(std::string_view file, int number) noexcept {
  append(file);
  append(number);
}

void proc_path::append(std::string_view part) noexcept {
  PINFOLD_ASSERT(bytes_ + part.size() < text_.size(), "a path ends with a zero");
  bytes_ += part.copy(text_.data() + bytes_, part.size());
}

void proc_path::append(int number) noexcept {
  char* const from = text_.data() + bytes_;
  const auto written = std::to_chars(from, text_.data() + text_.size() - 1, number);
  PINFOLD_ASSERT(written.ec == std::errc{}, "a path has room for its numbers");
  bytes_ += static_cast<std::size_t>(written.ptr - from);
}

}  // namespace pinfold::os
